"""The rules of compaction: which records are superseded, and what remains of each batch. No IO.

A *round* reads the keys of the closed, committed segments that are not clean yet, from the oldest on, until
its memory is used up. Then every segment up to the end of the round is rewritten without the records that
have a newer record with the same key below that end. The following are kept:
- the newest record of each key, and all records at and above the end of the round;
- a tombstone, until all replicas are clean up to it and ``delete.retention.ms`` has passed;
- records without a key, control batches, and bodies that cannot be read;
- the header of each batch that a state machine needs, because its producer may send it again.

A round ends below the last stable offset, so each transaction in it has ended. Records of committed
transactions are treated as all other records. Records of aborted transactions are removed, and supersede no
record. Of an aborted transaction the header of the first batch and the marker stay: from these two every
replica derives the aborted range, even if it has received its log from another replica. Markers of committed
transactions stay, too: another replica may still have records that need them.

Leaves to others: removing records from a batch (``records.compaction``), files (``segment_rewriter``), and
when a round begins and how fast it runs (``raftlog.hosting.compaction``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from raftlog.errors import CorruptBatch
from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import Batch
from raftlog.records.compaction import (
    GAP_OFFSETS_MAX,
    KeyedRecord,
    emptied,
    gap_batch,
    keyed_records,
    retain,
)
from raftlog.storage.retention import ClosedSegment

NO_TOMBSTONE: Final = 1 << 63  # above every offset
KEYS_MAX: Final = 200_000  # of one round: about 190 bytes of memory each
_DIGEST_BYTES: Final = 16  # collisions are practically impossible, even with deliberately chosen keys


class NewestOffsets:
    """The newest offset of each key, found by a digest of the key; records of aborted transactions do not
    count.
    """

    def __init__(self, keys_max: int, aborted: AbortedRanges) -> None:
        self._aborted = aborted
        self._keys_max = keys_max
        self._newest: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the memory for keys is used up, so that the round must end."""
        return len(self._newest) >= self._keys_max

    def note(self, batch: Batch) -> None:
        """Add the keys of one batch; batches must come in the order of the log."""
        if self._aborted.of(batch.header) is not None:
            return
        for record in _removable(batch):
            if record.key is not None:
                self._newest[_digest(record.key)] = record.offset

    def newest(self, key: bytes) -> int:
        """The newest offset of a record with this key; -1 for an unknown key."""
        return self._newest.get(_digest(key), -1)


@dataclass(frozen=True, slots=True)
class Round:
    """The data from which one round decides what stays, complete before the first segment is rewritten."""

    newest: NewestOffsets
    end: int  # all records at this offset and above stay
    tombstones_end: int = 0  # tombstones below this offset are no longer needed
    headers_kept: Collection[int] = frozenset()  # base offsets of batches whose headers stay
    aborted: AbortedRanges = field(default_factory=AbortedRanges)

    def keeps(self, record: KeyedRecord) -> bool:
        """Whether compaction keeps a record that belongs to no aborted transaction."""
        if record.key is None:
            return True
        if record.is_tombstone and record.offset < self.tombstones_end:
            return False
        return record.offset >= self.newest.newest(record.key)

    def keeps_header(self, batch: Batch) -> bool:
        """Whether compaction keeps the header of a batch all of whose records are removed."""
        header = batch.header
        aborted = self.aborted.of(header)
        begins_range = aborted is not None and aborted.first_offset == header.base_offset
        return header.has_producer and (begins_range or header.base_offset in self.headers_kept)


class Compaction:
    """Compacts the batches of one segment in one round."""

    def __init__(self, plan: Round) -> None:
        self.records_removed = 0
        self.oldest_tombstone = NO_TOMBSTONE  # of the tombstones that stay below the end of the round
        self._round = plan
        self._gap: tuple[int, int, int, int | None] | None = None  # first, last, leader epoch, newest stamp

    def feed(self, batches: Iterable[Batch]) -> list[Batch]:
        """Compact the next batches; return the finished batches, with gap batches for removed batches."""
        kept: list[Batch] = []
        for batch in batches:
            rest = self._rest(batch)
            if rest is not None:
                kept += [*self.flush(), rest]
            else:
                kept += self._widen(batch)
        return kept

    def flush(self) -> list[Batch]:
        """End the segment: return the gap batch that has not been returned yet, if there is one."""
        gap, self._gap = self._gap, None
        return [] if gap is None else [gap_batch(*gap)]

    def _rest(self, batch: Batch) -> Batch | None:
        """The batch without its superseded records; None if neither a record nor the header stays."""
        header = batch.header
        if header.last_offset >= self._round.end:
            return batch
        if header.is_gap:
            return None
        if self._round.aborted.of(header) is not None:
            return self._without(batch, header.record_count)
        records = _removable(batch)
        kept = {record.offset for record in records if self._round.keeps(record)}
        tombstones = (
            one.offset for one in records if one.is_tombstone and one.offset in kept and one.key is not None
        )
        self.oldest_tombstone = min(self.oldest_tombstone, min(tombstones, default=NO_TOMBSTONE))
        if records and len(kept) == len(records):
            return batch
        if not records and header.record_count:
            return batch  # its kind is not compacted
        if not kept:
            return self._without(batch, len(records))
        self.records_removed += len(records) - len(kept)
        return retain(batch, kept)

    def _without(self, batch: Batch, removed: int) -> Batch | None:
        """The batch's header without any of its records; None if the header is removed, too."""
        self.records_removed += removed
        if not self._round.keeps_header(batch):
            return None
        return emptied(batch) if removed else batch

    def _widen(self, batch: Batch) -> list[Batch]:
        """Make a removed batch part of the pending gap; return the earlier gap batch if the two cannot be
        joined.
        """
        header = batch.header
        first, last, epoch, stamped_ms = (
            header.base_offset,
            header.last_offset,
            header.leader_epoch,
            header.stamped_ms,
        )
        done: list[Batch] = []
        if self._gap is not None:
            gap_first, _, gap_epoch, gap_ms = self._gap
            if gap_epoch == epoch and last - gap_first < GAP_OFFSETS_MAX:
                first = gap_first
                stamped_ms = max((ms for ms in (gap_ms, stamped_ms) if ms is not None), default=None)
            else:
                done = self.flush()
        self._gap = (first, last, epoch, stamped_ms)
        return done


def is_due(closed: Sequence[ClosedSegment], clean_end: int, dirty_ratio_min: float) -> bool:
    """Whether the dirty part of the closed segments, at or above ``clean_end``, is large enough
    for a round.
    """
    dirty = sum(segment.size_bytes for segment in closed if segment.last >= clean_end)
    return dirty > 0 and dirty >= dirty_ratio_min * sum(segment.size_bytes for segment in closed)


def _removable(batch: Batch) -> list[KeyedRecord]:
    """The records of a batch that compaction may remove and whose keys count; empty for other kinds of
    batches.
    """
    header = batch.header
    if header.is_control or not header.record_count:
        return []
    try:
        return keyed_records(batch)
    except CorruptBatch:  # a producer stored a body without readable records
        return []


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()
