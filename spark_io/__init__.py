"""Topics as source and sink of Spark: the format ``raftlog`` of ``spark.readStream`` and ``df.writeStream``.

Decides: how offsets become Spark partitions, and how a batch is committed exactly once. Leaves to
others: everything about brokers; it sees ``raftlog.client``, ``.records``, ``.types`` and
``.errors`` only.

Read ``data_source`` first: what Spark calls. The path of a read is ``options``, ``positions``,
``discovery``, ``planning``, ``reading``, ``columns``. The path of a write is ``options``, ``rows``,
``staging``, ``commits``. History as files is in ``archive``, the format ``raftlog-archive``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("raftlog")`` and ``format("raftlog-archive")`` known to a session.

    Not needed where Spark finds ``pyspark_raftlog`` and ``pyspark_raftlog_archive``.
    """
    from spark_io.archive.data_source import ArchiveDataSource
    from spark_io.data_source import RaftlogDataSource

    spark.dataSource.register(RaftlogDataSource)
    spark.dataSource.register(ArchiveDataSource)
