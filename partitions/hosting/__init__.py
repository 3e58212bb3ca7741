"""All replicas of one broker: the metadata says which there should be, this package makes it so.

Decides: which logs are opened (``opener``, ``first_start``), closed and deleted (``deletion``, ``trash``),
where they lie (``directories``), which segments go (``retention_manager``), and how failed replicas are
handed to the repair scheduler (``replica_supervisor``, ``metadata_supervisor``). Leaves to others: what a
replica does, and how it is repaired.

Read ``replica_manager`` first; ``applied_metadata`` is what the disk remembers of the metadata acted on.
"""
