"""State of a partition's producers on every replica: a function of the committed log alone.

Only the headers of committed batches change the table, so all replicas have equal tables. A row is stored in
its encoded form, so a snapshot costs one copy of the rows.

The table's clock follows the append times that leaders stamp, never the timestamps of producers. The table
does not trust a single stamp: after a jump by more than half the expiration time, its clock subtracts the
jump until later stamps have advanced from the new time for a while. So a leader whose clock is wrong for one
batch does not expire producers.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from raftlog.errors import InvariantViolated
from raftlog.records.batch import SEQUENCE_MAX, BatchHeader
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

EXPIRATION_MS: Final = 86_400_000  # a producer is forgotten after a day without a batch
PRODUCERS_MAX: Final = 20_000  # of one partition; above it, the longest silent producer is forgotten
SNAPSHOT_VERSION: Final = 2
NO_SEQUENCE: Final = -1  # no batch of this epoch yet; 0 follows

_HEAD: Final = struct.Struct(">Bqqqq")  # version, then the values of ``_clock``
_ROW: Final = struct.Struct(">qhqB")  # producer, epoch, newest stamp at its last batch, number of batches
_BATCH: Final = struct.Struct(">iiqqi")  # first sequence, last offset delta, base offset, timestamp, epoch


class Sequenced(NamedTuple):
    """Sequences, offsets and time of one batch of one producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    leader_epoch: int


class ProducerState(NamedTuple):
    """Producer epoch and last applied batches (``window``, oldest first) of one producer."""

    epoch: int
    window: Sequence[Sequenced]


class ProducerTable:
    """The last applied batches of each producer of a partition."""

    def __init__(self, *, expiration_ms: int = EXPIRATION_MS, producers_max: int = PRODUCERS_MAX) -> None:
        self._expiration_ms = expiration_ms
        self._producers_max = producers_max
        self._jump_ms = expiration_ms // 2  # a longer step of the stamps is a jump
        self._settled_ms = expiration_ms // 24  # a jump counts once stamps have advanced this far after it
        self._first_ms = -1  # the first stamp; earlier writes count as written then
        self._newest_ms = -1  # of all stamps
        self._behind_ms = 0  # sum of the jumps that do not count yet
        self._steady_ms = 0  # advance of the stamps since the last jump
        self._rows: OrderedDict[int, bytes] = OrderedDict()  # ordered by last write, oldest first

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        """The ids of all producers, beginning with the producer that wrote longest ago."""
        return iter(self._rows)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._rows

    def get(self, producer_id: int) -> ProducerState | None:
        """The state of a producer, or None if it is unknown or has expired."""
        row = self._rows.get(producer_id)
        if row is None:
            return None
        window = [_sequenced(*batch) for batch in _BATCH.iter_unpack(memoryview(row)[_ROW.size :])]
        return ProducerState(_ROW.unpack_from(row)[1], window)

    def tail(self, producer_id: int) -> tuple[int, int] | None:
        """Producer epoch and last sequence of a producer's newest batch; None if ``get`` returns None.

        After the marker of a transaction: the next producer epoch, and ``NO_SEQUENCE``.
        """
        row = self._rows.get(producer_id)
        if row is None:
            return None
        if len(row) == _ROW.size:
            return _ROW.unpack_from(row)[1], NO_SEQUENCE
        first_sequence, delta, *_ = _BATCH.unpack_from(row, len(row) - _BATCH.size)
        return _ROW.unpack_from(row)[1], (first_sequence + delta) & SEQUENCE_MAX

    def base_offsets(self) -> frozenset[int]:
        """The base offsets of batches that a producer may send again: compaction must keep the headers of
        these batches.
        """
        return frozenset(
            batch[2]
            for row in self._rows.values()
            for batch in _BATCH.iter_unpack(memoryview(row)[_ROW.size :])
        )

    def apply(self, header: BatchHeader) -> None:
        """Apply one committed batch, which the leader validated before it appended the batch."""
        stamped_ms = header.stamped_ms
        if stamped_ms is not None and stamped_ms > self._newest_ms:
            self._advance(stamped_ms)
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id < 0:
            return
        if header.is_control:
            self._fence(producer_id, epoch + 1)
            return
        if not header.is_sequenced:
            return
        row = self._rows.pop(producer_id, b"")
        goes_on = row and _ROW.unpack_from(row)[1] == epoch
        known = row[_ROW.size :][-(PRODUCER_BATCHES_MAX - 1) * _BATCH.size :] if goes_on else b""
        head = _ROW.pack(producer_id, epoch, self._newest_ms, len(known) // _BATCH.size + 1)
        batch = _BATCH.pack(
            header.base_sequence,
            header.last_offset_delta,
            header.base_offset,
            header.max_timestamp,
            header.leader_epoch,
        )
        self._rows[producer_id] = head + known + batch
        self._forget_surplus()

    def _fence(self, producer_id: int, epoch: int) -> None:
        """End a transaction: its producer continues in ``epoch``, beginning with the first sequence."""
        row = self._rows.pop(producer_id, b"")
        if not row or _ROW.unpack_from(row)[1] < epoch:
            row = _ROW.pack(producer_id, epoch, self._newest_ms, 0)
        self._rows[producer_id] = row
        self._forget_surplus()

    def _forget_surplus(self) -> None:
        if len(self._rows) > self._producers_max:
            self._rows.popitem(last=False)

    def snapshot(self) -> bytes:
        """Encode the table. Replicas with an equal applied index give equal bytes."""
        return b"".join([_HEAD.pack(SNAPSHOT_VERSION, *self._clock), *self._rows.values()])

    def restore(self, snapshot: bytes) -> None:
        """Replace the table by the table in ``snapshot``; empty bytes stand for the initial table."""
        self._clock = -1, -1, 0, 0
        self._rows.clear()
        if not snapshot:
            return
        if snapshot[0] != SNAPSHOT_VERSION:
            raise InvariantViolated(
                f"the producer table has version {snapshot[0]}: install the release that wrote it"
            )
        _, *clock = _HEAD.unpack_from(snapshot)
        self._clock = tuple(clock)
        at, size = _HEAD.size, len(snapshot)
        while at < size:
            end = at + _ROW.size + _BATCH.size * snapshot[at + _ROW.size - 1]
            (producer_id,) = _PRODUCER.unpack_from(snapshot, at)
            self._rows[producer_id] = snapshot[at:end]
            at = end

    @property
    def _clock(self) -> tuple[int, ...]:
        return self._first_ms, self._newest_ms, self._behind_ms, self._steady_ms

    @_clock.setter
    def _clock(self, clock: tuple[int, ...]) -> None:
        self._first_ms, self._newest_ms, self._behind_ms, self._steady_ms = clock

    def _advance(self, stamped_ms: int) -> None:
        """Advance the table's clock, and remove producers that have been silent for the expiration time."""
        if self._newest_ms < 0:
            self._first_ms = self._newest_ms = stamped_ms
            return
        step_ms, self._newest_ms = stamped_ms - self._newest_ms, stamped_ms
        if step_ms > self._jump_ms:
            self._behind_ms += step_ms
            self._steady_ms = 0
        elif self._behind_ms:
            self._steady_ms += step_ms
            if self._steady_ms >= self._settled_ms:
                self._behind_ms = 0
        limit_ms = stamped_ms - self._behind_ms - self._expiration_ms
        rows = self._rows
        while rows and max(_ROW.unpack_from(next(iter(rows.values())))[2], self._first_ms) < limit_ms:
            rows.popitem(last=False)


_PRODUCER: Final = struct.Struct(">q")


def _sequenced(first: int, delta: int, base_offset: int, timestamp_ms: int, epoch: int) -> Sequenced:
    last = (first + delta) & SEQUENCE_MAX
    return Sequenced(first, last, base_offset, base_offset + delta, timestamp_ms, epoch)
