"""Consumer groups: who reads which partition, and where each group has come to.

Will decide: membership of groups, generations, assignments, committed offsets, all kept in the
compacted topic ``__offsets``. Will leave to others: replication (``raftlog``) and HTTP (``api``).
Nothing of it is in this release.
"""
