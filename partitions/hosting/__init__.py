"""Hosts the replicas that the metadata places on this broker.

Decides: which logs are opened (``opener``, ``first_start``), closed and deleted (``deletion``, ``trash``),
their directories (``directories``), and how replicas of partitions and of the metadata log are tenants of the
hosting (``hosted_partition``, ``hosted_metadata``). Leaves to others: running tenants, repairing failed
tenants, and retention (``raftlog.hosting``); serving (``partitions.replica``).

Read ``replica_manager`` first; ``applied_metadata`` stores the version of the metadata that was applied.
"""
