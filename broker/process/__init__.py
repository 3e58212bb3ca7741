"""The process of a broker: memory, descriptors, the reserve of its disk, its event loop, and its logs."""
