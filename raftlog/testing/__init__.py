"""Tools for tests: storage in memory, clocks that tests move, and brokers for the tests of other projects.

``fake_filesystem`` is a disk that can lose power, be full and fail; its files are in ``stored_file``.
``memory_log`` keeps the contract of ``LogStorage`` in the most obvious way: the reference for every other
log. ``log_changes`` makes changes of a log at once. ``unsynced_filesystem`` and ``shifted_clock`` are the
machine's own, for tests on real files.

The testing kit: ``kit`` is what tests call, ``pytest_plugin`` has its fixtures, and ``supervisor`` gives
``orders`` to the process of the brokers. What runs in that process is in ``chaos.kit``.
"""
