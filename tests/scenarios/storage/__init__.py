"""Logs and data directories on the real file system."""
