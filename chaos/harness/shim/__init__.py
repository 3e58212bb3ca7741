"""Injects faults into a broker's disk and clock, inside its process: a preloaded C library changes calls.

``shim.c`` defines the changed calls; ``shim.py`` builds it and changes the faults while the broker runs.
"""
