"""Checks the system calls of the real filesystem adapter against a model of POSIX.

The simulator runs the storage on a fake disk, so it does not check whether ``OsFilesystem`` keeps the port's
contract with its calls. Here the real adapter runs: each call goes through ``posix``, a model of POSIX
durability, and ``checked`` compares the contract of each operation with that model.

Decides: what the calls make durable, and which call breaks a rule. Reads and writes may process fewer bytes
than requested, and calls may fail, as in a real system. Leaves to others: how the storage uses the port
(``verification.simulator``). Interrupted calls are not covered: the interpreter repeats them (PEP 475).
"""
