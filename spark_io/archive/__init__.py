"""The archive: records of topics as Parquet files in a directory or an object store.

Decides: the layout of an archive, which of its files count, and how records are restored into a topic. Leaves
to others: Parquet (pyarrow), object stores (fsspec), brokers (``raftlog.client``). Only ``data_source``,
``sink`` and ``source`` need Spark; ``writing`` archives topics without Spark, and ``fetching`` reads an
archive for brokers.

The layout, below the address of the archive::

    topic=orders/partition=0/00000000000000000000-00000000000000001000-5f0c2a91.parquet
    _manifest/<query id>/00000000000000000007.json    batch 7 of a query of Spark
    _manifest/write-orders/00000000000000000007.json  batch 7 of topic orders, written without Spark
    _manifest/_generation/00000000000000000002.json   the second compaction

A file has the records of one partition from the first offset in its name up to the second one, excluded. The
eight characters after the offsets are random for every file, so no writer touches a file of another writer.
Files without an entry in a manifest are left over from failed writers, and are not read. A manifest is
created once and never changed. A generation replaces all earlier generations, and the manifests of each query
up to a batch.

Read ``entries`` first: the content of a manifest, and which files count.
"""
