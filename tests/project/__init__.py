"""Tests of the source text itself, of the documents and of the public names."""
