"""Raft cores alone under drawn faults: no frames, no files, no event loop, and so many more seeds.

Decides: what a network, disks and clients in miniature do to a group whose members come and go and
whose logs are cut in front, and what must hold meanwhile. Leaves to others: everything that is tested,
``raftlog.core`` as it ships, and the level of whole brokers around this one (``chaos.simulator``).

Read ``group`` first, then ``checker``.
"""
