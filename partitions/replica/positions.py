"""Where in a log a read begins.

Decides: which offset a time or a count of records stands for, among committed records only.
Leaves to others: whether this replica may answer at all, and waiting (``replica``).
"""

from __future__ import annotations

from partitions.values import AtTime, LastRecords, Position, Start
from raftlog.errors import CorruptBatch
from raftlog.records.batch import Batch, split_batches
from raftlog.records.reader import iter_records
from raftlog.storage.log_storage import LogReader
from raftlog.types import Index, Offset

ONE_BATCH = 1  # bytes_max of a read that wants one batch: it gets at least one


def needs_high_watermark(position: Position) -> bool:
    """Whether the answer depends on where the committed records end."""
    return position is not Start.EARLIEST and not isinstance(position, int)


def find(log: LogReader, commit_index: Index, position: Position) -> Offset:
    """The offset that a position stands for; the high watermark where no committed record fits."""
    high_watermark = commit_index + 1
    match position:
        case int():
            return Offset(position)
        case Start.EARLIEST:
            return Offset(log.first_index)
        case Start.LATEST:
            return Offset(high_watermark)
        case LastRecords(count):
            return Offset(max(log.first_index, high_watermark - max(count, 0)))
        case AtTime(timestamp_ms):
            return _at_time(log, high_watermark, timestamp_ms)


def timestamp_at(log: LogReader, commit_index: Index, offset: Offset) -> int | None:
    """The timestamp of a user's committed record, or None where there is none (compaction leaves holes)."""
    if not log.first_index <= offset <= commit_index:
        return None
    batch = _batch_at(log, Index(offset))
    if batch.header.is_control:
        return None
    header = batch.header
    if header.is_append_time and header.is_whole:
        return header.max_timestamp
    try:
        found = next(iter_records(batch, offset), None)
        return found.timestamp_ms if found is not None and found.offset == offset else None
    except CorruptBatch:  # a producer stored what is no records
        return batch.header.max_timestamp


def _at_time(log: LogReader, high_watermark: int, timestamp_ms: int) -> Offset:
    found = log.index_at_time(timestamp_ms)
    if found is None or found[0] >= high_watermark:
        return Offset(high_watermark)
    base = max(found[0], log.first_index)
    batch = _batch_at(log, Index(base))
    if batch.header.is_append_time and batch.header.is_whole:
        return Offset(base)
    late = (record.offset for record in iter_records(batch, base) if record.timestamp_ms >= timestamp_ms)
    otherwise = base if batch.header.is_whole else min(batch.last_offset + 1, high_watermark)
    try:
        return Offset(next(late, otherwise))
    except CorruptBatch:  # the reader meets it there
        return Offset(base)


def _batch_at(log: LogReader, index: Index) -> Batch:
    return split_batches(log.read(index, index, bytes_max=ONE_BATCH).read())[0]
