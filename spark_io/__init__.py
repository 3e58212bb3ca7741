"""Topics as source and sink of Spark data pipelines.

Will decide: how offsets become Spark partitions, and how a batch is committed exactly once. Will
leave to others: everything about brokers; it sees ``raftlog.client``, ``.records``, ``.types`` and
``.errors`` only. Nothing of it is in this release.
"""
