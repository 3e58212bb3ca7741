"""Simulates one log alone, whose machine may crash at any moment, without a group, clients or an event loop.

Decides: the operations of a replica on its log, the crashes, and the checks
afterwards. Leaves to others: the tested code, ``raftlog.storage``, and the other levels
(``verification.simulator``, ``raft_level``).

Read ``log_run`` first, then ``checker``; both use the model in ``line``.
"""
