"""The state of one partition of ``__delayed``: the pending messages, and the offsets of their records.

The records stay in the log; a message uses memory for its id, its time and its offset (``pending``). Pure and
deterministic. Every replica applies the committed records; only the leader decides which records are written.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

import msgspec

from delayed.pending import Pending, Target, Waiting
from delayed.recent import Left, Recent
from delayed.records import (
    DUE_HEADER,
    KINDS,
    OUTCOME_HEADER,
    Change,
    ChangeKey,
    Key,
    Lane,
    LaneKey,
    Message,
    MessageKey,
    Outcome,
    Producer,
    ProducerKey,
    Row,
    Schedule,
    ScheduleKey,
    Value,
)
from raftlog.hosting.budget import Usage
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records

SNAPSHOT_VERSION: Final = 2
NOWHERE: Final = -1  # the offset of a record that is not committed yet
RECORD_BYTES: Final = 64  # of a record, without its content


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The head of a snapshot: the state without the columns of the pending messages, which follow."""

    version: int
    producer_id: int | None
    targets: list[tuple[int, Target]]
    counts: list[int]
    failed: list[tuple[bytes, str]]
    lanes: list[tuple[LaneKey, Lane]]
    recent: list[tuple[bytes, Left]]
    schedules: list[tuple[str, Schedule]]


class _FirstSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot in the first format."""

    version: int
    producer_id: int | None
    waiting: list[tuple[bytes, Waiting]]
    changed: list[bytes]
    failed: list[tuple[bytes, str]]
    lanes: list[tuple[LaneKey, Lane]]
    recent: list[tuple[bytes, Left]]
    schedules: list[tuple[str, Schedule]] = []


_SNAPSHOT: Final = msgspec.msgpack.Decoder(_Snapshot)
_FIRST_SNAPSHOT: Final = msgspec.msgpack.Decoder(_FirstSnapshot)
_OUTCOMES: Final = {outcome.encode(): outcome for outcome in Outcome}
_HEAD: Final = struct.Struct(">BI")  # the version, and the bytes before the columns


class DelayedState:
    """The state derived from the records of a partition of ``__delayed``."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all messages and schedules."""
        self.producer_id: int | None = None
        self.waiting = Pending()
        self.failed: dict[bytes, str] = {}  # reasons of messages that cannot be delivered
        self.lanes: dict[LaneKey, Lane] = {}
        self.schedules: dict[str, Schedule] = {}
        self.recent = Recent()
        # By topic: the failed messages, the other messages, and the bytes of all.
        self.failures, self.open, self.sizes = Usage(), Usage(), Usage()

    def copy(self) -> DelayedState:
        """Copy the state, for independent changes."""
        copied = DelayedState()
        copied.producer_id = self.producer_id
        copied.waiting = self.waiting.copy()
        copied.failed = dict(self.failed)
        copied.lanes = dict(self.lanes)
        copied.schedules = dict(self.schedules)
        copied.recent = self.recent.copy()
        copied.open, copied.failures = self.open.copy(), self.failures.copy()
        copied.sizes = self.sizes.copy()
        return copied

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch. Records of unknown kinds are skipped."""
        if entry.header.is_control:
            return
        for record in read_records(entry):
            known = KINDS.decoded(record.key, record.value)
            if known is not None:
                outcome, due_ms = _how_it_left(record.headers) if record.value is None else (None, -1)
                self._take(*known, outcome, due_ms, record.offset, record.timestamp_ms)

    def put(self, row: Row, at_ms: int) -> None:
        """Apply a record that this leader is about to write."""
        self._take(row.key, row.value, row.outcome, row.due_ms, NOWHERE, at_ms)

    def snapshot(self) -> bytes:
        """Encode the state. Replicas with equal states give equal bytes."""
        return b"".join(self.snapshot_pieces())

    def snapshot_pieces(self) -> list[bytes | bytearray | array[int]]:
        """The bytes of ``snapshot`` in pieces, without copies of the columns of the pending messages."""
        head = msgspec.msgpack.encode(
            _Snapshot(
                SNAPSHOT_VERSION,
                self.producer_id,
                self.waiting.targets,
                self.waiting.counts,
                [(id_, self.failed[id_]) for id_ in sorted(self.failed)],
                sorted(self.lanes.items(), key=lambda row: (row[0].topic, row[0].partition)),
                self.recent.rows(),
                sorted(self.schedules.items()),
            )
        )
        return [_HEAD.pack(SNAPSHOT_VERSION, len(head)), head, *self.waiting.columns()]

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the state in ``snapshot``; empty bytes stand for the initial state.

        Raises ``ValueError``.
        """
        self.clear()
        if not snapshot:
            return
        found: _Snapshot | _FirstSnapshot
        if snapshot[0] == SNAPSHOT_VERSION:
            end = _HEAD.size + _HEAD.unpack_from(snapshot)[1]
            found = _SNAPSHOT.decode(memoryview(snapshot)[_HEAD.size : end])
            self.waiting = Pending.restored(found.targets, found.counts, memoryview(snapshot)[end:])
        else:
            found = _FIRST_SNAPSHOT.decode(snapshot)
            if found.version != 1:
                raise ValueError(f"a snapshot of delayed messages has version {found.version}")
            for id_, one in found.waiting:
                self.waiting.put(id_, one)
            for id_ in found.changed:
                self.waiting.change(id_, self.waiting[id_].due_ms)
        self.producer_id = found.producer_id
        self.failed = dict(found.failed)
        self.lanes = dict(found.lanes)
        self.recent = Recent(found.recent)
        self.schedules = dict(found.schedules)
        for (topic, _), count in self.waiting.counted():
            self.open.add(topic, count)
        for topic, size_bytes in self.waiting.sizes().items():
            self.sizes.add(topic, size_bytes)
        for id_ in self.failed:
            self.open.add(self.waiting[id_].topic, -1)
            self.failures.add(self.waiting[id_].topic, 1)

    def _take(
        self, key: Key, value: Value | None, outcome: Outcome | None, due_ms: int, offset: int, at_ms: int
    ) -> None:
        """Apply one record, written at ``offset`` and at the time ``at_ms``."""
        match key:
            case MessageKey():  # the usual case
                id_ = key.id
                self._count(id_, -1)
                if (before := self.waiting.find(id_)) is not None:
                    self.sizes.add(before.topic, -before.size_bytes)
                if isinstance(value, Message):
                    self.open.add(value.topic, 1)
                    place, size_bytes = (value.topic, value.partition), size_of(value)
                    self.sizes.add(value.topic, size_bytes)
                    self.waiting.put(id_, Waiting(value.due_ms, offset, size_bytes, *place))
                    return
                self._leave(id_)
                self._remember(id_, outcome, due_ms, at_ms)
            case ChangeKey(id_) if isinstance(value, Change) and id_ in self.waiting:
                self._count(id_, -1)
                self.waiting.change(id_, value.due_ms, value.partition)
                self.failed.pop(id_, None)
                if value.failed:
                    self.failed[id_] = value.failed
                self._count(id_, 1)
            case LaneKey() if isinstance(value, Lane):
                self.lanes[key] = value
            case LaneKey():
                self.lanes.pop(key, None)
            case ScheduleKey(name) if isinstance(value, Schedule):
                self.schedules[name] = value
            case ScheduleKey(name):
                self.schedules.pop(name, None)
                self._remember(left_as(name), outcome, due_ms, at_ms)
            case ProducerKey() if isinstance(value, Producer):
                self.producer_id = value.producer_id

    def _count(self, id_: bytes, amount: int) -> None:
        """Add ``amount`` (1 or -1) to the counters of a pending or failed message."""
        one = self.waiting.find(id_)
        if one is not None:
            (self.failures if id_ in self.failed else self.open).add(one.topic, amount)

    def _leave(self, id_: bytes) -> None:
        self.waiting.remove(id_)
        self.failed.pop(id_, None)

    def _remember(self, id_: bytes, outcome: Outcome | None, due_ms: int, at_ms: int) -> None:
        """Remember the outcome in a tombstone, of which compaction may have deleted the earlier records."""
        if outcome is not None:
            self.recent.remember(id_, Left(outcome, due_ms, at_ms))
        self.recent.forget_before(at_ms)


def was_delivered(state: DelayedState, id_: bytes) -> bool:
    """Whether a message was delivered within ``RECENT_MS``."""
    left = state.recent.get(id_)
    return left is not None and left.outcome is Outcome.DELIVERED


def left_as(schedule_id: str) -> bytes:
    """The key of a deleted schedule in ``recent``; it is longer than the id of any message."""
    return b"schedule of " + schedule_id.encode()


def size_of(message: Message) -> int:
    """Approximate bytes that a message's record takes in a batch."""
    size = RECORD_BYTES + len(message.value or b"") + len(message.key or b"")
    for name, value in message.headers:
        size += 16 + 4 * len(name) + len(value or b"")
    return size


def _how_it_left(headers: tuple[tuple[str, bytes | None], ...]) -> tuple[Outcome | None, int]:
    """The outcome and due time in the headers of a tombstone."""
    found = dict(headers)
    outcome = _OUTCOMES.get(found.get(OUTCOME_HEADER) or b"")
    return outcome, -1 if outcome is None else int(found.get(DUE_HEADER) or b"-1")
