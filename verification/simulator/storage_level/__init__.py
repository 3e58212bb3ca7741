"""One log alone on a disk that may crash at any moment: no group, no clients, no event loop.

Decides: the operations of a replica on its log, the crashes, and the checks
afterwards. Leaves to others: the tested code, ``raftlog.storage``, and the other levels
(``verification.simulator``, ``raft_level``).

Read ``log_run`` first, then ``checker``; ``line`` is their common model.
"""
