"""Raft cores alone under random faults: no frames, no files, no event loop, and so many more seeds.

Decides: how a minimal network, disks and clients affect a group with membership changes and moving log
starts, and the checks meanwhile. Leaves to others: the tested code, ``raftlog.core``, and the level of whole
brokers (``verification.simulator``).

Read ``group`` first, then ``checker``.
"""
