"""One log alone on a disk that may die at any moment: no group, no clients, no event loop.

Decides: what a replica asks of its log in the course of a life, when the power goes, and what must be back
afterwards. Leaves to others: everything that is tested, ``raftlog.storage`` as it ships, and the other levels
(``chaos.simulator``, ``raft_level``).

Read ``life`` first, then ``checker``; ``line`` is the model that both go by.
"""
