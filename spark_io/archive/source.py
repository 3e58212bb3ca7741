"""The batch reader of ``format("raftlog-archive")``, as Spark calls it.

Decides: which files a read opens. A file whose name is outside of the selected topics, partitions or offsets
is never opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_io.archive import catalogue
from spark_io.archive.entries import Catalogue, Entry
from spark_io.archive.files import SCHEMA, read_batches
from spark_io.archive.options import ArchiveReadOptions
from spark_io.archive.storage import open_storage
from spark_io.columns import arrow_schema, schema_of
from spark_io.planning import Range, tasks

if TYPE_CHECKING:
    import pyarrow as pa

Pieces = list[tuple[Entry, Range]]


class ArchiveTask(InputPartition):
    """The files that one Spark partition reads."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__(pieces)


class ArchiveReader(DataSourceReader):
    """``spark.read.format("raftlog-archive")``. Which files count is looked up once, at planning."""

    def __init__(self, options: ArchiveReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        found = catalogue.load(open_storage(self._options.address))
        ranges = selected(found, self._options)
        planned = tasks(ranges, max_records=self._options.max_records_per_partition)
        return [ArchiveTask([piece for one in some for piece in found.pieces(one)]) for some in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. Spark calls it with nothing for a read without tasks."""
        yield from spark_batches(self._options.address, partition.value or (), arrow_schema(self._schema))


def archive_schema() -> StructType:
    """The columns of the source ``raftlog``, with headers and the term."""
    return StructType([*schema_of(includes_headers=True).fields, StructField("term", IntegerType())])


def selected(found: Catalogue, options: ArchiveReadOptions) -> list[Range]:
    """The offsets to read, a range for each file."""
    ranges = []
    for one in found.files:
        if options.topics is not None and one.topic not in options.topics:
            continue
        if options.partitions is not None and one.partition not in options.partitions:
            continue
        start = max(one.start, options.start or 0)
        end = one.end if options.end is None else min(one.end, options.end)
        if start < end:
            ranges.append(Range(one.topic, one.partition, start, end))
    return ranges


def spark_batches(
    address: str, pieces: Iterable[tuple[Entry, Range]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Archived records in the columns that Spark asks for. Raises ``ArchiveDamaged``."""
    import pyarrow as pa

    for batch in read_batches(open_storage(address), pieces):
        columns = [batch.column(SCHEMA.get_field_index(field.name)).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
