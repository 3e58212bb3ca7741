"""A replica's log on disk, and the port through which every byte goes there.

Decides what is where, in which order things reach the disk, and what a crash may cost: nothing that
was durable. Leaves to others: when to sync (the node's flusher), what to delete and when (the
partition, with ``retention`` as its rule), and what the batches mean.

Read ``log_storage`` first (the contract), then ``segmented_log`` (its implementation), ``recovery`` (what is
found on opening) and ``durable_state``. Beside the log stand ``state_files`` and ``members``;
``raftlog.repair`` finds damage and writes files anew. ``docs/storage-format.md`` describes
every byte.
"""
