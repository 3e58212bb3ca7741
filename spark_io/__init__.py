"""Reads and writes topics with Spark: the format ``raftlog`` of ``spark.readStream`` and ``df.writeStream``.

Decides: how offsets become Spark partitions, and how a batch is committed exactly once. Leaves to others:
requests to brokers. Of raftlog, this package imports only ``raftlog.client``, ``.records``, ``.types`` and
``.errors``. Read ``data_source`` first: Spark calls it. The path of a read is ``options``, ``positions``,
``discovery``, ``planning``, ``reading``, ``columns``. The path of a write is ``options``, ``rows``,
``staging``, ``commits``. ``archive`` stores records as files: the format ``raftlog-archive``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession, *, by_value: bool = False) -> None:
    """Register ``format("raftlog")`` and ``format("raftlog-archive")`` in a session.

    This call is not needed if Spark finds the modules ``pyspark_raftlog`` and ``pyspark_raftlog_archive``.
    With ``by_value`` each task carries the code of this package, so that executors need only the package
    ``raftlog`` and pyarrow.
    """
    if by_value:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    from spark_io.archive.data_source import ArchiveDataSource
    from spark_io.by_value import PortableDataSource
    from spark_io.data_source import RaftlogDataSource

    spark.dataSource.register(PortableDataSource if by_value else RaftlogDataSource)
    spark.dataSource.register(ArchiveDataSource)
