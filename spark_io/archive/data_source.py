"""The format ``raftlog-archive``, which Spark creates from a name and options."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_io.archive.options import archive_read_options, archive_write_options
from spark_io.archive.sink import ArchiveWriter, check_columns
from spark_io.archive.source import ArchiveReader, archive_schema
from spark_io.errors import InvalidOption


class ArchiveDataSource(DataSource):
    """``format("raftlog-archive")`` of ``spark.read`` and ``df.writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "raftlog-archive"

    def schema(self) -> StructType:
        """The columns of a source."""
        return archive_schema()

    def reader(self, schema: StructType) -> ArchiveReader:
        """Return the reader for ``spark.read``."""
        return ArchiveReader(archive_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse ``df.write``, which has no batch number that would identify a repeated write."""
        raise InvalidOption("df.write cannot archive rows once; use df.writeStream, with availableNow=True")

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:
        """Return the writer for ``df.writeStream``."""
        if overwrite:
            raise InvalidOption('outputMode is complete; an archive only grows, so use .outputMode("append")')
        options = archive_write_options(self.options)
        check_columns(schema)
        return ArchiveWriter(options)
