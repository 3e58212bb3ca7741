"""Shared by tests: fakes that pass the same conformance suites as the real parts, clusters, and a
vocabulary.
"""
