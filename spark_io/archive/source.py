"""The batch reader of ``format("raftlog-archive")``, with the methods that Spark calls.

Decides: which files a read opens. A file is never opened if its path shows that it has no selected topic,
partition or offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StructField, StructType

from raftlog.client.topic_names import suggestion
from spark_io.archive import catalogue
from spark_io.archive.entries import Catalogue, Entry
from spark_io.archive.files import SCHEMA, read_batches
from spark_io.archive.options import ArchiveReadOptions
from spark_io.archive.storage import open_storage
from spark_io.errors import InvalidOption
from spark_io.options import shown
from spark_io.planning import Range, tasks
from spark_io.schemas import arrow_schema, schema_of

if TYPE_CHECKING:
    import pyarrow as pa

Pieces = list[tuple[Entry, Range]]


class ArchiveTask(InputPartition):
    """The files that one Spark partition reads."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__(pieces)


class ArchiveReader(DataSourceReader):
    """``spark.read.format("raftlog-archive")``. The files that count are looked up once, at planning."""

    def __init__(self, options: ArchiveReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        found = catalogue.load(open_storage(self._options.address))
        _check(found, self._options)
        pieces = selected(found, self._options)
        return archive_tasks(pieces, self._options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task. For a read without tasks Spark passes None."""
        yield from spark_batches(self._options.address, partition.value or (), arrow_schema(self._schema))


def archive_schema() -> StructType:
    """The columns of the source ``raftlog``, with headers and the term."""
    return StructType([*schema_of(includes_headers=True).fields, StructField("term", IntegerType())])


def _check(found: Catalogue, options: ArchiveReadOptions) -> None:
    """Raise ``InvalidOption`` for an address without an archive, and for topics that are not archived."""
    names = {one.topic for one in found.partitions}
    if not names:
        raise InvalidOption(f"there is no archive at {shown('path', options.address)}; correct the address")
    for topic in sorted((options.topics or frozenset()) - names):
        raise InvalidOption(f"the archive has no topic {topic!r}{suggestion(topic, names)}; correct its name")


def selected(found: Catalogue, options: ArchiveReadOptions) -> Pieces:
    """The files to read, and the offsets to read from each."""
    pieces: Pieces = []
    for one in found.partitions:
        if options.topics is not None and one.topic not in options.topics:
            continue
        if options.partitions is not None and one.partition not in options.partitions:
            continue
        end = found.end(one) if options.end is None else options.end
        pieces += found.pieces(Range(one.topic, one.partition, options.start or 0, end))
    return pieces


def archive_tasks(pieces: Pieces, max_records: int | None) -> list[InputPartition]:
    """The tasks that read files, packed and split like the tasks that read the log."""
    ordered = sorted(pieces, key=lambda piece: piece[1])
    ranges = [wanted for _, wanted in ordered]
    planned = tasks(ranges, max_records=max_records)
    return [ArchiveTask([(ordered[_at(ranges, one)][0], one) for one in some]) for some in planned]


def _at(ranges: list[Range], part: Range) -> int:
    """The index, in an ordered list of ranges, of the range that contains ``part``."""
    return bisect_right(ranges, part[:3], key=lambda one: one[:3]) - 1


def spark_batches(
    address: str, pieces: Iterable[tuple[Entry, Range]], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Archived records, with the columns of ``schema``. Raises ``ArchiveDamaged``."""
    import pyarrow as pa

    for batch in read_batches(open_storage(address), pieces):
        columns = [batch.column(SCHEMA.get_field_index(field.name)).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
