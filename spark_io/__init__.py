"""Topics as source and sink of Spark: the format ``raftlog`` of ``spark.readStream`` and ``df.writeStream``.

Decides: how offsets become Spark partitions, and how a batch is committed exactly once. Leaves to
others: everything about brokers; it sees ``raftlog.client``, ``.records``, ``.types`` and
``.errors`` only.

Read ``data_source`` first: what Spark calls. The path of a read is ``options``, ``positions``,
``discovery``, ``planning``, ``reading``, ``columns``. The path of a write is ``options``, ``rows``,
``staging``, ``commits``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession, *, by_value: bool = False) -> None:
    """Make ``format("raftlog")`` known to a session. Not needed where Spark finds ``pyspark_raftlog``.

    ``by_value`` sends this package to Spark's Python workers, where it is not installed; raftlog's own
    client and pyarrow must be.
    """
    from spark_io.data_source import RaftlogDataSource

    if by_value:
        import sys

        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(RaftlogDataSource)
