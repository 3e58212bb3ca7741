"""The records of the topic ``__delayed``: the contract with its readers.

Keys and values are msgpack as in all internal topics (``raftlog.hosting.keyed_records``). The newest record
of each key is the whole state. A message keeps its record, and so its offset, until it leaves: a change of
its time is a record of its own. The tombstone of a message says in headers how it left and when it was due,
since compaction may leave out the message. A schedule is written again when it fires, in one batch with its
message.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from raftlog.hosting.keyed_records import KeyedRecords
from raftlog.records.builder import Record

TOPIC: Final = "__delayed"
OUTCOME_HEADER: Final = "outcome"
DUE_HEADER: Final = "due"
ID_BYTES: Final = 12


class Outcome(enum.StrEnum):
    """The outcome of a message: delivered or cancelled."""

    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class MessageKey(msgspec.Struct, frozen=True, array_like=True, tag="message"):
    """One delayed message."""

    id: bytes


class ChangeKey(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """The key of the changes to a message since it was accepted."""

    id: bytes


class LaneKey(msgspec.Struct, frozen=True, array_like=True, tag="lane", order=True):
    """The way to one target partition."""

    topic: str
    partition: int


class ScheduleKey(msgspec.Struct, frozen=True, array_like=True, tag="schedule"):
    """One schedule."""

    id: str


class ProducerKey(msgspec.Struct, frozen=True, array_like=True, tag="producer"):
    """The producer id with which this partition of ``__delayed`` writes to its targets."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message as it was accepted; ``topic_id`` tells a topic from a later one of the same name."""

    topic: str
    topic_id: str
    partition: int
    due_ms: int
    accepted_ms: int
    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def record(self) -> Record:
        """The record that the target receives."""
        return Record(self.value, self.key, self.headers, self.timestamp_ms)


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest time of a message; ``failed`` says why it cannot be delivered, until it has another time.

    ``partition`` is its target, which may be another than the one with which it was accepted; -1: that one.
    Each change repeats it, since compaction keeps the newest one only.
    """

    due_ms: int
    failed: str = ""
    partition: int = -1


class Lane(msgspec.Struct, frozen=True, omit_defaults=True):
    """``ids`` are on their way as one batch with this epoch and sequence; without any, the lane is idle.

    ``producer_id`` is set once the epochs of the partition's own producer are used up.
    """

    epoch: int
    sequence: int
    ids: tuple[bytes, ...] = ()
    producer_id: int | None = None


class Missed(enum.StrEnum):
    """The policy for instants that passed while no broker could fire them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A message for each instant of a cron expression.

    Instants up to ``after_ms`` have fired, or never will; ``fired_ms`` is the newest that has. ``failed``
    says why the schedule has ended: its messages cannot be delivered.
    """

    topic: str
    topic_id: str
    partition: int
    cron: str
    time_zone: str
    missed: Missed
    created_ms: int
    after_ms: int
    fired_ms: int = -1
    is_paused: bool = False
    failed: str = ""
    value: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it fires."""
        return not self.is_paused and not self.failed


class Producer(msgspec.Struct, frozen=True):
    """Allocated with the first message."""

    producer_id: int


Key = MessageKey | ChangeKey | LaneKey | ScheduleKey | ProducerKey
Value = Message | Change | Lane | Schedule | Producer

KINDS: Final = KeyedRecords[Key, Value](
    {
        MessageKey: Message,
        ChangeKey: Change,
        LaneKey: Lane,
        ScheduleKey: Schedule,
        ProducerKey: Producer,
    }
)


class Row(msgspec.Struct, frozen=True):
    """One record to write; ``outcome`` for the tombstone of a message or of a schedule."""

    key: Key
    value: Value | None
    outcome: Outcome | None = None
    due_ms: int = -1  # when a message that leaves was due


def record_of(row: Row) -> Record:
    """The record of a row."""
    record = KINDS.record_of(row.key, row.value)
    if row.outcome is None:
        return record
    headers = ((OUTCOME_HEADER, row.outcome.encode()), (DUE_HEADER, b"%d" % row.due_ms))
    return Record(record.value, record.key, headers)
