"""Storage in memory, for tests and for the simulator.

``fake_filesystem`` is a disk that can lose power, be full and fail; its files are in ``stored_file``.
``memory_log`` keeps the contract of ``LogStorage`` in the most obvious way: the reference for every other
log.
"""
