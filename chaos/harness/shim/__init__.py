"""Faults of a broker's disk and clock, in its own process: a preloaded C library changes system calls.

``shim.c`` says which calls; ``shim.py`` builds it and changes the faults while the broker runs.
"""
