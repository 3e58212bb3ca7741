"""Injects faults into a broker's disk and clock, inside its process: a preloaded C library changes system
calls.

``shim.c`` defines the changed calls; ``shim.py`` builds the library and changes the faults while the broker
runs.
"""
