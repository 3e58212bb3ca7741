"""Tools for tests: storage in memory, shifted clocks, and brokers for the tests of other projects.

``fake_filesystem`` is a disk that can lose power, be full and fail; ``stored_file`` has the content of its
files. ``memory_log`` implements ``LogStorage`` in the simplest way: the reference for every other log.
``log_changes`` changes a log and waits for the disk in one call. ``unsynced_filesystem`` and
``shifted_clock`` wrap the machine's filesystem and clock, for tests on real files.

The testing kit: tests call ``kit``, ``pytest_plugin`` has the fixtures, and ``supervisor`` sends ``orders``
to the process of the brokers. The code of that process is in ``chaos.kit``.
"""
