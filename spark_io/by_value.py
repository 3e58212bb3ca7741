"""The format ``raftlog`` for workers that get it by value: they cannot import the rest of this package."""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_io.data_source import RaftlogDataSource
from spark_io.options import read_options
from spark_io.source import BatchReader, StreamReader


class PortableDataSource(RaftlogDataSource):
    """The same, with its readers at hand."""

    def reader(self, schema: StructType) -> BatchReader:
        """Of ``spark.read``."""
        return BatchReader(read_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Of ``spark.readStream``."""
        return StreamReader(read_options(self.options, is_stream=True), schema)
