"""Makes the format ``raftlog`` known to every Spark session: Spark looks for modules named ``pyspark_*``."""

from spark_io.data_source import RaftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
