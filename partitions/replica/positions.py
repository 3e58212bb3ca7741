"""Finds the offset at which a read begins.

Decides: which offset a time or a count of records means, among the records that the reader may see. Leaves to
others: whether this replica may answer, and waiting (``replica``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from partitions.values import Position, Start
from raftlog.errors import CorruptBatch
from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import Batch, BatchHeader, split_batches
from raftlog.records.reader import iter_records
from raftlog.storage.log_storage import LogReader
from raftlog.types import Index, Offset

NO_ABORTED: Final = AbortedRanges()
ONE_BATCH: Final = 1  # ``bytes_max`` of a read of one batch, as a read returns at least one
LOOKED_BACK_BATCHES_MAX: Final = 20_000  # enough for 10,000 records with a marker after each
LOOK_BACK_BATCHES: Final = 500  # of one step, which takes a few milliseconds


def needs_high_watermark(position: Position) -> bool:
    """Whether the offset of ``position`` depends on the high watermark."""
    return position is not Start.EARLIEST and not isinstance(position, int)


class NewestRecords:
    """Backward search for the first of the newest ``count`` records that the reader sees.

    The search counts user records, except records of ``aborted`` transactions. In a batch that cannot be
    decoded all offsets count. ``last`` is the newest offset that the search has not examined yet.
    """

    def __init__(self, count: int, last: Index, aborted: AbortedRanges) -> None:
        self.last = last
        self._missing = count
        self._batches_left = LOOKED_BACK_BATCHES_MAX
        self._aborted = aborted

    @property
    def is_complete(self) -> bool:
        """Whether all ``count`` records are found, or the search has examined ``LOOKED_BACK_BATCHES_MAX``."""
        return self._missing <= 0 or self._batches_left <= 0

    @property
    def offset(self) -> Offset:
        """The offset of the first of the newest records.

        While some of the records are missing, the result assumes a record at each offset up to ``last``, and
        may be below the log start.
        """
        return Offset(self.last + 1 - self._missing)

    def look(self, log: LogReader) -> None:
        """Examine up to ``LOOK_BACK_BATCHES`` batches that end at ``last``."""
        for header in log.headers_back(self.last, LOOK_BACK_BATCHES):
            self._batches_left -= 1
            is_seen = not header.is_control and self._aborted.of(header) is None
            count = header.record_count if is_seen else 0
            if count >= self._missing:
                self.last = Index(self._first_in(log, header) - 1)
                self._missing = 0
            else:
                self.last, self._missing = Index(header.base_offset - 1), self._missing - count
            if self.is_complete:
                return

    def _first_in(self, log: LogReader, header: BatchHeader) -> int:
        """The offset in a batch from which on the batch has exactly the missing records."""
        if not header.is_whole:
            with suppress(CorruptBatch):
                records = list(iter_records(_batch_at(log, Index(header.base_offset)), header.base_offset))
                return records[-self._missing].offset
        return header.last_offset + 1 - self._missing


def at_time(
    log: LogReader, first: Index, last: Index, timestamp_ms: int, aborted: AbortedRanges = NO_ABORTED
) -> Offset | None:
    """The offset of the first user record in ``first..last`` with a timestamp at or after a time, or None.

    Records of ``aborted`` transactions do not count. The record with the batch's highest timestamp may be
    below ``first``, or compacted away: then the search continues after the batch.
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
    """The timestamp of the committed user record at ``offset``; None without one, as after compaction."""
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
    except CorruptBatch:  # a producer stored bytes that are not records
        return batch.header.max_timestamp


def _reaching(batch: Batch, first: Index, timestamp_ms: int) -> Offset | None:
    if batch.header.is_append_time and batch.header.is_whole:
        return Offset(first)
    late = (record.offset for record in iter_records(batch, first) if record.timestamp_ms >= timestamp_ms)
    try:
        found = next(late, None)
    except CorruptBatch:  # the reader gets the error at this offset
        found = first
    return None if found is None else Offset(found)


def _batch_at(log: LogReader, index: Index) -> Batch:
    return split_batches(log.read(index, index, bytes_max=ONE_BATCH).read())[0]
