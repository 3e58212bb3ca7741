"""The transactions of one partition on every replica: a function of the committed log alone.

Decides: the end for readers of committed records (the last stable offset), and which records below it belong
to aborted transactions. Leaves to others: fencing (``producer_table``), reading (``reads``).

The leader writes its log start into each marker. All replicas forget the ranges of aborted transactions below
the newest log start in a marker, so their tables stay equal. A reader of committed records is refused below
that offset, even if this replica still has the records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from raftlog.errors import InvariantViolated
from raftlog.records.aborted import AbortedRange, AbortedRanges
from raftlog.records.batch import HEADER_BYTES, Batch, split_batches
from raftlog.records.compaction import gap_batch
from raftlog.records.control import Marker, marker_in

SNAPSHOT_VERSION: Final = 1


class OpenTransaction(NamedTuple):
    """A transaction without a marker in this partition."""

    producer_id: int
    epoch: int
    first_offset: int


class _Snapshot(NamedTuple):
    version: int
    known_from: int
    open: list[OpenTransaction]
    aborted: list[AbortedRange]


_DECODER: Final = msgspec.msgpack.Decoder(_Snapshot)


class TransactionTable:
    """Open transactions and aborted ranges of one partition."""

    def __init__(self) -> None:
        self.known_from = 0  # aborted ranges that end below are forgotten
        self._open: dict[int, OpenTransaction] = {}  # by producer, in the order of their first offsets
        self._aborted = AbortedRanges()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def oldest(self) -> OpenTransaction | None:
        """The open transaction that began first, or None."""
        return next(iter(self._open.values()), None)

    @property
    def open(self) -> tuple[OpenTransaction, ...]:
        """The transactions without a marker, in the order in which they began."""
        return tuple(self._open.values())

    def is_open(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction in this partition."""
        return producer_id in self._open

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which all transactions have ended; at most ``high_watermark``."""
        oldest = self.oldest
        return high_watermark if oldest is None else min(oldest.first_offset, high_watermark)

    def aborted(self) -> AbortedRanges:
        """A copy of the aborted ranges, for work on another thread."""
        return self._aborted.copy()

    @property
    def has_aborted(self) -> bool:
        """Whether the partition may have records of aborted transactions."""
        return bool(self._aborted)

    def without_aborted(self, data: bytes | memoryview) -> bytes | memoryview:
        """The stored batches, with gap batches in place of the batches of aborted transactions."""
        if not self._aborted or len(data) < HEADER_BYTES:
            return data  # the usual case
        batches = list(split_batches(data))
        if not any(self._aborted.of(batch.header) for batch in batches):
            return data
        return b"".join(self._visible(batch).data for batch in batches)

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch."""
        header = entry.header
        if not header.is_transactional:
            return  # the usual case
        marker = marker_in(entry)
        if marker is not None:
            self._end(marker, header.base_offset)
            return
        producer_id, epoch = header.producer_id, header.producer_epoch
        self._lost_marker(producer_id, epoch, header.base_offset - 1)
        if producer_id not in self._open:
            self._open[producer_id] = OpenTransaction(producer_id, epoch, header.base_offset)

    def snapshot(self) -> bytes:
        """Encode the table. Replicas with an equal applied index give equal bytes."""
        return msgspec.msgpack.encode(
            _Snapshot(SNAPSHOT_VERSION, self.known_from, [*self._open.values()], [*self._aborted])
        )

    def restore(self, snapshot: bytes) -> None:
        """Replace the table by the table in ``snapshot``; empty bytes stand for the initial table."""
        self.known_from, self._open, self._aborted = 0, {}, AbortedRanges()
        if not snapshot:
            return
        found = _DECODER.decode(snapshot)
        if found.version != SNAPSHOT_VERSION:
            raise InvariantViolated(
                f"the transaction table has version {found.version}: install the release that wrote it"
            )
        self.known_from, self._aborted = found.known_from, AbortedRanges(found.aborted)
        self._open = {each.producer_id: each for each in found.open}

    def _lost_marker(self, producer_id: int, epoch: int, last_offset: int) -> None:
        """Count a producer's open transaction of an earlier producer epoch as aborted.

        An unsafe recovery has lost the transaction's marker. The lost marker may have been a commit or an
        abort, and aborted records must never be shown.
        """
        found = self._open.get(producer_id)
        if found is not None and found.epoch < epoch:
            del self._open[producer_id]
            self._aborted.add(AbortedRange(producer_id, found.first_offset, last_offset))

    def _end(self, marker: Marker, offset: int) -> None:
        self._lost_marker(marker.producer_id, marker.producer_epoch, offset)
        found = self._open.get(marker.producer_id)
        if found is not None and found.epoch == marker.producer_epoch:
            del self._open[marker.producer_id]
            if not marker.is_commit:
                self._aborted.add(AbortedRange(marker.producer_id, found.first_offset, offset))
        self.known_from = max(self.known_from, marker.log_start)
        self._aborted.forget_below(self.known_from)

    def _visible(self, batch: Batch) -> Batch:
        """The batch, or a gap batch in its place if its transaction was aborted."""
        header = batch.header
        if self._aborted.of(header) is None:
            return batch
        return gap_batch(header.base_offset, header.last_offset, header.leader_epoch, header.stamped_ms)
