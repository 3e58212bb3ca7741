"""Manages the process of a broker: memory, descriptors, the reserve of its disk, its event loop, its logs."""
