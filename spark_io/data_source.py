"""The format ``raftlog``, which Spark creates from a name and options.

Decides: which class answers which call. There is no ``pushFilters``: Spark up to 4.3 applies a pushed filter
to all uses of a DataFrame, which then gives wrong results.

Spark imports this module in two new processes for each batch of a stream, one to ask for the writer and one
to commit. So modules that only readers need are imported when a reader is created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_io.errors import InvalidOption
from spark_io.options import WriteOptions, read_options, write_options
from spark_io.rows import check_columns
from spark_io.schemas import schema_of
from spark_io.sink import BatchWriter, StreamWriter
from spark_io.targets import check_target

PATIENCE_S: Final = 5.0  # wait of ``df.write`` for a broker that answers; tasks of a stream wait longer

if TYPE_CHECKING:
    from spark_io.source import BatchReader, StreamReader


class RaftlogDataSource(DataSource):
    """``format("raftlog")`` of ``spark.read``, ``spark.readStream``, ``df.write`` and ``df.writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "raftlog"

    def schema(self) -> StructType:
        """The columns of a source."""
        includes_headers = self.options.get("includeHeaders", "").lower() == "true"
        return schema_of(includes_headers=includes_headers, columns=self.options.get("columns"))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader for ``spark.read``."""
        from spark_io.source import BatchReader

        return BatchReader(read_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader for ``spark.readStream``."""
        from spark_io.source import StreamReader

        return StreamReader(read_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer for ``df.write``."""
        if overwrite:
            raise InvalidOption('mode is overwrite, but a topic only grows; use .mode("append")')
        options = _checked(schema, write_options(self.options, is_stream=False), PATIENCE_S)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer for ``df.writeStream``."""
        if overwrite:
            raise InvalidOption('outputMode is complete, but a topic only grows; use .outputMode("append")')
        options = _checked(schema, write_options(self.options, is_stream=True), None)
        return StreamWriter(options)


def _checked(schema: StructType, options: WriteOptions, patience_s: float | None) -> WriteOptions:
    """Check that the columns can be written and that the topic, if the options name one, exists."""
    check_columns(schema, options.topic)
    check_target(options.servers, options.topic, patience_s)
    return options
