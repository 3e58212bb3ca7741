"""All replicas of one broker: the metadata says which there should be, this package makes it so.

Decides: which logs are opened (``opener``, ``first_start``), closed and deleted (``deletion``, ``trash``),
where they lie (``directories``), and how replicas of partitions and of the metadata log are tenants
(``hosted_partition``, ``hosted_metadata``). Leaves to others: running tenants, handing failed ones to
repair, and retention (``raftlog.hosting``), and what a replica does (``partitions.replica``).

Read ``replica_manager`` first; ``applied_metadata`` is what the disk remembers of the metadata acted on.
"""
