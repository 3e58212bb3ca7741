"""Records of the topic ``__delayed``: the format that readers of the topic rely on.

Keys and values are msgpack, as in all internal topics (``raftlog.hosting.keyed_records``). The newest records
of all keys are the whole state. A message keeps its record, and so its offset, until it leaves: a change of
its time is a separate record. The headers of a message's tombstone have its outcome and due time, since
compaction may remove the message. A schedule is written again when it fires, in one batch with the fired
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
    """Key of the record of one delayed message."""

    id: bytes


class ChangeKey(msgspec.Struct, frozen=True, array_like=True, tag="change"):
    """Key of the record with the newest change of a message since it was accepted."""

    id: bytes


class LaneKey(msgspec.Struct, frozen=True, array_like=True, tag="lane", order=True):
    """Key of the record of a lane: its target partition."""

    topic: str
    partition: int


class ScheduleKey(msgspec.Struct, frozen=True, array_like=True, tag="schedule"):
    """Key of the record of one schedule."""

    id: str


class ProducerKey(msgspec.Struct, frozen=True, array_like=True, tag="producer"):
    """Key of the record with the producer id by which this partition of ``__delayed`` writes to targets."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An accepted message. ``topic_id`` distinguishes the topic from a later topic with an equal name."""

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
        """The record to append to the target partition."""
        return Record(self.value, self.key, self.headers, self.timestamp_ms)


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest due time of a message. ``failed`` is the reason why the message cannot be delivered until it
    is rescheduled.

    ``partition`` is the message's current target; -1 means the target with which it was accepted. Each change
    repeats the target, since compaction keeps only the newest change.
    """

    due_ms: int
    failed: str = ""
    partition: int = -1


class Lane(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a lane. ``ids`` are in delivery as one batch with this producer epoch and sequence.

    A lane without ``ids`` is idle. ``producer_id`` is set once all epochs of the partition's first producer
    id are used.
    """

    epoch: int
    sequence: int
    ids: tuple[bytes, ...] = ()
    producer_id: int | None = None


class Missed(enum.StrEnum):
    """The policy for instants that passed while no broker could fire the schedule."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule: a message for each instant of a cron expression.

    Instants up to ``after_ms`` have fired, or never will; ``fired_ms`` is the newest fired instant.
    ``failed`` is the reason why the schedule has ended, because its messages cannot be delivered.
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
        """Whether the schedule fires: it is neither paused nor failed."""
        return not self.is_paused and not self.failed


class Producer(msgspec.Struct, frozen=True):
    """The producer id of a partition of ``__delayed``, allocated with its first message."""

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
    """One record to write. ``outcome`` is set for the tombstone of a message or schedule."""

    key: Key
    value: Value | None
    outcome: Outcome | None = None
    due_ms: int = -1  # due time of a message that leaves


def record_of(row: Row) -> Record:
    """Encode a row as a record."""
    record = KINDS.record_of(row.key, row.value)
    if row.outcome is None:
        return record
    headers = ((OUTCOME_HEADER, row.outcome.encode()), (DUE_HEADER, b"%d" % row.due_ms))
    return Record(record.value, record.key, headers)
