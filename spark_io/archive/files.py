"""Writes and reads the Parquet files of an archive.

Decides: the columns of a file, so that each record can be restored exactly, and the size of files. Leaves to
others: where files are (``storage``) and which files count (``entries``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from raftlog.types import TopicPartition
from spark_io.archive.entries import Entry, data_path
from spark_io.archive.storage import Storage, has_created
from spark_io.errors import ArchiveDamaged, InvalidRows
from spark_io.planning import Range

ROW_GROUP_ROWS: Final = 65_536
READ_BYTES: Final = 2 << 20  # approximate bytes of records in memory of a reader
BUFFERED_BYTES: Final = 128 << 20  # of all partitions of a task; then the largest becomes a file
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("term", pa.int32()),
    ]
)


class FileWriter:
    """Takes rows of any partitions and writes files, each with rows of one partition ordered by offset."""

    def __init__(self, storage: Storage, *, buffered_bytes: int = BUFFERED_BYTES) -> None:
        self._storage = storage
        self._buffered_bytes = buffered_bytes
        self._buffers: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._entries: list[Entry] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of ``SCHEMA``; ``term`` may be missing. Raises ``InvalidRows``."""
        for target, rows in _by_partition(_as_archived(batch)):
            self._buffers.setdefault(target, []).append(rows)
        while sum(map(_size, self._buffers.values())) > self._buffered_bytes:
            largest = max(self._buffers, key=lambda one: _size(self._buffers[one]))
            self._flush(largest)

    def close(self) -> list[Entry]:
        """Write the remaining rows; return the entries of all files."""
        for target in sorted(self._buffers):
            self._flush(target)
        return self._entries

    def _flush(self, target: TopicPartition) -> None:
        table = pa.Table.from_batches(self._buffers.pop(target), SCHEMA)
        self._entries.append(write_file(self._storage, target, table))


def write_file(storage: Storage, target: TopicPartition, table: pa.Table) -> Entry:
    """Write rows of one partition as a file with a unique name."""
    table = table.sort_by("offset")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    data = sink.getvalue().to_pybytes()
    offsets, times = table.column("offset"), pc.min_max(table.column("timestamp").cast(pa.int64()))
    start, end = offsets[0].as_py(), offsets[-1].as_py() + 1
    if pc.count_distinct(offsets).as_py() != table.num_rows:
        raise InvalidRows(
            f"rows of {target} between {start} and {end - 1} have the same offset; archive each record once"
        )
    path = data_path(target.topic, target.partition, start, end, uuid4().hex[:8])
    if not has_created(storage, path, data):
        raise FileExistsError(f"{path} already exists with other bytes; run the command or query again")
    return Entry(
        path=path,
        topic=target.topic,
        partition=target.partition,
        start=start,
        end=end,
        rows=table.num_rows,
        bytes=len(data),
        crc=crc32c(data),
        min_timestamp=times["min"].as_py(),
        max_timestamp=times["max"].as_py(),
        term=pc.max(table.column("term")).as_py(),
    )


def read_file(storage: Storage, entry: Entry) -> pq.ParquetFile:
    """Read a file and check it against its entry. Raises ``ArchiveDamaged``."""
    return opened(checked_data(storage, entry))


def opened(data: pa.Buffer) -> pq.ParquetFile:
    """Open the Parquet file that consists of ``data``.

    Read this file without Arrow's threads: a process that ends while these threads run may abort.
    """
    return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)  # the whole file is in memory


def checked_data(storage: Storage, entry: Entry) -> pa.Buffer:
    """Read all bytes of a file, and check them against the entry of the file. Raises ``ArchiveDamaged``."""
    try:
        data = storage.read(entry.path)
    except FileNotFoundError as error:
        raise ArchiveDamaged(f"{entry.path} is missing; restore it from a copy of the archive") from error
    if len(data) != entry.bytes or crc32c(data) != entry.crc:
        raise ArchiveDamaged(
            f"{entry.path} has {len(data)} bytes with CRC-32C {crc32c(data)}, its manifest says "
            f"{entry.bytes} and {entry.crc}; restore it from a copy of the archive"
        )
    return pa.py_buffer(data)


def read_batches(
    storage: Storage,
    pieces: Iterable[tuple[Entry, Range]],
    *,
    rows_max: int = 10_000,
    read: Callable[[Storage, Entry], pq.ParquetFile] = read_file,
) -> Iterator[pa.RecordBatch]:
    """Read the records of ``pieces``, in order, with the columns of ``SCHEMA``. Raises ``ArchiveDamaged``."""
    for entry, wanted in pieces:
        file = read(storage, entry)
        groups = [at for at in range(file.num_row_groups) if _may_have(file.metadata.row_group(at), wanted)]
        rows = min([rows_max, *(_rows_at_once(file.metadata.row_group(at)) for at in groups)])
        for batch in file.iter_batches(batch_size=rows, row_groups=groups, use_threads=False):
            offsets = batch.column(batch.schema.get_field_index("offset"))
            kept = pc.and_(pc.greater_equal(offsets, wanted.start), pc.less(offsets, wanted.end))
            found = batch.filter(kept)
            if found.num_rows:
                yield found.cast(SCHEMA)


def first_offset_since(
    storage: Storage, pieces: Iterable[tuple[Entry, Range]], timestamp_ms: int
) -> int | None:
    """The offset of the first record since a time. Opens only files that may have such a record."""
    for entry, wanted in pieces:
        if entry.max_timestamp < timestamp_ms:
            continue
        for batch in read_batches(storage, [(entry, wanted)]):
            times = batch.column(SCHEMA.get_field_index("timestamp")).cast(pa.int64())
            found = batch.filter(pc.greater_equal(times, timestamp_ms))
            if found.num_rows:
                return int(found.column(SCHEMA.get_field_index("offset"))[0].as_py())
    return None


def _may_have(group: pq.RowGroupMetaData, wanted: Range) -> bool:
    statistics = group.column(SCHEMA.get_field_index("offset")).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min < wanted.end and statistics.max >= wanted.start)


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """The average number of rows in ``READ_BYTES`` bytes of a row group."""
    return max(1, int(READ_BYTES * group.num_rows // max(1, group.total_byte_size)))


def _as_archived(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for field in SCHEMA:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            columns.append(batch.column(at).cast(field.type))
        elif field.name == "term":
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise InvalidRows(f"there is no column {field.name}; the archive keeps whole records")
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    table = pa.Table.from_batches([batch])
    groups = table.select(["topic", "partition"]).group_by(["topic", "partition"], use_threads=False)
    for pair in groups.aggregate([]).to_pylist():
        if pair["topic"] is None or pair["partition"] is None:
            raise InvalidRows("topic or partition is null in a row; archive records as they were read")
        is_its = pc.and_(
            pc.equal(batch.column("topic"), pair["topic"]),
            pc.equal(batch.column("partition"), pair["partition"]),
        )
        yield TopicPartition(pair["topic"], pair["partition"]), batch.filter(is_its)


def _size(batches: list[pa.RecordBatch]) -> int:
    return sum(int(one.nbytes) for one in batches)
