"""A replica's log on disk, and the port through which every byte goes to the disk.

Decides the files of a replica and their contents, the order in which data reaches the disk, and what a crash
may lose: never durable data. Leaves to others: when to sync (the node's flusher), what to delete and when
(the partition, with ``retention`` as its rule), and what the batches mean.

Read ``log_storage`` first (the contract), then ``segmented_log`` (its implementation), ``recovery`` (opening
a log after a crash) and ``durable_state``. ``state_files`` and ``members`` hold the state beside the log;
``raftlog.repair`` finds damage and rewrites files. ``docs/storage-format.md`` describes every byte.
"""
