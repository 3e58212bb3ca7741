"""Compaction of one log by hand, and what must be left of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import Batch, check_batch, split_batches
from raftlog.records.reader import StoredRecord, read_records
from raftlog.storage.compactor import Compactor
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.log_storage import LogStorage, carry_out
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import Index


def compactor(
    filesystem: Filesystem,
    log: SegmentedLog,
    clean_end: int = 0,
    *,
    applied_index: int | None = None,
    keys_max: int = 1000,
    headers_kept: Collection[int] = frozenset(),
    tombstones_end: int = 0,
    aborted: AbortedRanges | None = None,
    joined_bytes_max: int = 0,
    old_end: int = 0,
) -> Compactor:
    """One round over a small log, in small steps."""
    limit = log.last_index if applied_index is None else applied_index
    return Compactor(
        filesystem,
        log.directory,
        [segment for segment in log.compactable_segments if segment.last <= limit],
        log.terms(),
        Index(max(clean_end, log.first_index)),
        keys_max=keys_max,
        headers_kept=headers_kept,
        tombstones_end=tombstones_end,
        aborted=aborted,
        joined_bytes_max=joined_bytes_max,
        old_end=old_end,
        step_bytes=150,
        index_interval_bytes=100,
    )


def compact(filesystem: Filesystem, log: SegmentedLog, work: Compactor | None = None) -> Compactor:
    """A whole round of a log that no group uses."""
    work = work or compactor(filesystem, log)
    while (step := work.step()) is not None:
        if isinstance(step, RewrittenSegment):
            carry_out(log.replace_change(step))
    return work


def stored(log: LogStorage) -> list[Batch]:
    """All batches of a log, checked."""
    if log.last_index < log.first_index:
        return []
    batches = split_batches(log.read(log.first_index, log.last_index, bytes_max=1 << 30).read())
    for batch in batches:
        check_batch(batch)
    return batches


def records_in(batches: Sequence[Batch]) -> list[StoredRecord]:
    """The records of users."""
    return [record for batch in batches if not batch.header.is_control for record in read_records(batch)]


def survivors(batches: Sequence[Batch], end: int, tombstones_end: int = 0) -> list[StoredRecord]:
    """The slow twin: what must be left when everything below ``end`` is compacted."""
    records = records_in(batches)
    newest = {record.key: record.offset for record in records if record.offset < end}
    return [
        record
        for record in records
        if record.offset >= end
        or record.key is None
        or (
            newest[record.key] == record.offset
            and not (record.value is None and record.offset < tombstones_end)
        )
    ]
