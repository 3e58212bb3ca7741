"""Tests of the benchmarks and of the reliability report."""
