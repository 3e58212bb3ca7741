"""Where in a log a read begins.

Decides: which offset a time or a count of records stands for, among the records that its reader may see.
Leaves to others: whether this replica may answer at all, and waiting (``replica``).
"""

from __future__ import annotations

from typing import Final

from partitions.values import LastRecords, Position, Start
from raftlog.errors import CorruptBatch
from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import Batch, split_batches
from raftlog.records.reader import iter_records
from raftlog.storage.log_storage import LogReader
from raftlog.types import Index, Offset

NO_ABORTED: Final = AbortedRanges()
ONE_BATCH: Final = 1  # bytes_max of a read that wants one batch: it gets at least one


def needs_high_watermark(position: Position) -> bool:
    """Whether the answer depends on where the committed records end."""
    return position is not Start.EARLIEST and not isinstance(position, int)


def find(log: LogReader, commit_index: Index, position: Offset | Start | LastRecords) -> Offset:
    """The offset that a position other than a time stands for; a time is for ``at_time``."""
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


def at_time(
    log: LogReader, first: Index, last: Index, timestamp_ms: int, aborted: AbortedRanges = NO_ABORTED
) -> Offset | None:
    """The first user record among ``first..last`` that has a timestamp at or after a time; None without one.

    Records of ``aborted`` transactions do not count. The record by which a batch reaches the time may lie
    below ``first``, or may be compacted away: then the search goes on behind the batch.
    """
    while (found := log.index_at_time(timestamp_ms, first)) is not None:
        first = Index(max(found[0], first))
        if first > last:
            return None
        batch = _batch_at(log, first)
        offset = None if aborted.of(batch.header) else _reaching(batch, first, timestamp_ms)
        if offset is not None:
            return offset
        first = Index(batch.last_offset + 1)
    return None


def timestamp_at(
    log: LogReader, commit_index: Index, offset: Offset, aborted: AbortedRanges = NO_ABORTED
) -> int | None:
    """The timestamp of a user's committed record, or None where there is none (compaction leaves holes)."""
    if not log.first_index <= offset <= commit_index:
        return None
    batch = _batch_at(log, Index(offset))
    if batch.header.is_control or aborted.of(batch.header):
        return None
    header = batch.header
    if header.is_append_time and header.is_whole:
        return header.max_timestamp
    try:
        found = next(iter_records(batch, offset), None)
        return found.timestamp_ms if found is not None and found.offset == offset else None
    except CorruptBatch:  # a producer stored what is no records
        return batch.header.max_timestamp


def _reaching(batch: Batch, first: Index, timestamp_ms: int) -> Offset | None:
    if batch.header.is_append_time and batch.header.is_whole:
        return Offset(first)
    late = (record.offset for record in iter_records(batch, first) if record.timestamp_ms >= timestamp_ms)
    try:
        found = next(late, None)
    except CorruptBatch:  # the reader meets it there
        found = first
    return None if found is None else Offset(found)


def _batch_at(log: LogReader, index: Index) -> Batch:
    return split_batches(log.read(index, index, bytes_max=ONE_BATCH).read())[0]
