"""Manages the process of a broker: its memory, its descriptors, the free space of its disk, its event loop,
its log lines.
"""
