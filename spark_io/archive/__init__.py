"""The archive: history of topics as Parquet files in a directory or an object store.

Decides: the layout, which files count, and how records return into a topic. Leaves to others: Parquet
(pyarrow), object stores (fsspec), brokers (``raftlog.client``). Only ``data_source``, ``sink`` and ``source``
need Spark; ``writing`` archives topics without it, and ``fetching`` reads them for brokers.

The layout, below the address of the archive::

    topic=orders/partition=0/00000000000000000000-00000000000000001000-5f0c2a91.parquet
    _manifest/<query id>/00000000000000000007.json    batch 7 of a query of Spark
    _manifest/write-orders/00000000000000000007.json  batch 7 of topic orders, written without Spark
    _manifest/_generation/00000000000000000002.json   the second compaction

A file has the records of one partition from its first offset up to its second one, excluded. The eight
characters after them are new for every file that is written, so no writer touches a file of another one.
Files without an entry in a manifest are left-overs of writers that failed, and are not read. A manifest is
created once and never changed. A generation replaces the manifests up to a batch of each query, and the
generations before it.

Read ``entries`` first: what a manifest says, and which files count.
"""
