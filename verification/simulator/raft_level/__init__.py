"""Simulates Raft cores alone under random faults. Without frames, files and an event loop, many more seeds
can run.

Decides: the behaviour of a minimal network, of disks and of clients, the changes of memberships and log
starts, and the checks during a run. Leaves to others: the tested code, ``raftlog.core``, and the level of
whole brokers (``verification.simulator``).

Read ``group`` first, then ``checker``.
"""
