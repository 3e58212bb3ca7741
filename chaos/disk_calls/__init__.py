"""The system calls of the real filesystem adapter, recorded and judged.

The simulator runs the storage on a fake disk, so nothing there sees whether ``OsFilesystem`` keeps the
port's promises with the calls that it makes. Here it runs for real: every call goes through ``posix``, a
model of what POSIX makes durable, and ``judged`` compares what each operation promises with that model.

Decides: what the calls make durable, and which call breaks a rule. Calls are made to be cut short or to fail
as the system may. Leaves to others: what the storage does with the port (``chaos.simulator``). A call that is
interrupted is not among them: the interpreter repeats it (PEP 475), the adapter never sees it.
"""
