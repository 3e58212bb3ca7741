"""The format ``raftlog`` for workers that get this package by value, and so cannot import its modules."""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_io.data_source import RaftlogDataSource
from spark_io.options import read_options
from spark_io.source import BatchReader, StreamReader


class PortableDataSource(RaftlogDataSource):
    """``RaftlogDataSource`` with readers that are imported together with this module."""

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for ``spark.read``."""
        return BatchReader(read_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader for ``spark.readStream``."""
        return StreamReader(read_options(self.options, is_stream=True), schema)
