"""The requests to the coordinators of delayed messages, and their replies. Nothing is decided here.

Every request may be repeated: messages have ids that the broker of the request has chosen.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from delayed.pending import Waiting
from delayed.records import Schedule

StateName = Literal["pending", "delivering", "failed"]
ScheduleState = Literal["active", "paused", "failed"]


class When(msgspec.Struct, frozen=True, array_like=True):
    """Either a delay from now on, by the coordinator's clock, or a time. Negative: not given."""

    delay_ms: int = -1
    at_ms: int = -1


class NewMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message to be accepted."""

    id: bytes
    partition: int
    when: When
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


class Add(msgspec.Struct, tag="add", frozen=True, kw_only=True):
    """Accept messages for one topic, all or none. The reply is ``NeedsProducerId`` where one is missing.

    ``delay_ms_max`` is the retention of the topic, or -1.
    """

    topic: str
    topic_id: str
    messages: tuple[NewMessage, ...]
    delay_ms_max: int = -1
    new_producer_id: int = -1


class Reschedule(msgspec.Struct, tag="reschedule", frozen=True, kw_only=True):
    """Give a pending message, or one that has failed, another time."""

    id: bytes
    when: When
    delay_ms_max: int = -1


class Cancel(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    """Drop a pending message, or one that has failed."""

    id: bytes


class Read(msgspec.Struct, tag="read", frozen=True, kw_only=True):
    """Describe one message."""

    id: bytes


class ReadMany(msgspec.Struct, tag="list", frozen=True, kw_only=True):
    """Read up to ``count_max`` messages behind an id, in the order of their ids; of one topic, or of all."""

    topic: str | None
    after: bytes
    count_max: int


class CreateSchedule(msgspec.Struct, tag="create-schedule", frozen=True, kw_only=True):
    """Begin a schedule; again with the same contents is the same. ``NeedsProducerId`` as for ``Add``.

    The times of ``schedule`` are set by the coordinator. Its partition is a part of the contents if
    ``names_partition``: else a broker has chosen it, by the partitions that the topic had.
    """

    id: str
    schedule: Schedule
    new_producer_id: int = -1
    names_partition: bool = False


class PauseSchedule(msgspec.Struct, tag="pause-schedule", frozen=True, kw_only=True):
    """Stop a schedule, or have it go on from now, also one that has failed."""

    id: str
    is_paused: bool


class DeleteSchedule(msgspec.Struct, tag="delete-schedule", frozen=True, kw_only=True):
    """End a schedule. Messages that it has fired stay."""

    id: str


class ReadSchedule(msgspec.Struct, tag="schedule", frozen=True, kw_only=True):
    """Describe one schedule."""

    id: str


class ReadSchedules(msgspec.Struct, tag="schedules", frozen=True, kw_only=True):
    """Read up to ``count_max`` schedules behind an id, in the order of their ids; of one topic, or of all."""

    topic: str | None
    after: str
    count_max: int


ScheduleRequest = CreateSchedule | PauseSchedule | DeleteSchedule | ReadSchedule | ReadSchedules


class ReadMoving(msgspec.Struct, tag="moving", frozen=True, kw_only=True):
    """Whether messages are on their way to a partition; the reply is ``Moving``."""

    topic: str
    partition: int


class CountTopic(msgspec.Struct, tag="count", frozen=True, kw_only=True):
    """A request for the numbers of messages and schedules of a topic; the reply is ``Counted``."""

    topic: str
    topic_id: str


Request = Add | Reschedule | Cancel | Read | ReadMany | ReadMoving | CountTopic | ScheduleRequest


READS: Final = (Read, ReadMany, ReadMoving, CountTopic, ReadSchedule, ReadSchedules)
"""Classes of requests that write nothing."""


class Added(msgspec.Struct, tag="added", frozen=True):
    """When each message is due, in order."""

    due_ms: tuple[int, ...]


class NeedsProducerId(msgspec.Struct, tag="needs-producer-id", frozen=True):
    """The request was not carried out: repeat it with a new producer id."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """The request is done."""


class Described(msgspec.Struct, frozen=True):
    """One message that waits."""

    id: bytes
    waiting: Waiting
    state: StateName
    reason: str = ""


class Found(msgspec.Struct, tag="found", frozen=True):
    """By id."""

    messages: tuple[Described, ...]


class DescribedSchedule(msgspec.Struct, frozen=True):
    """One schedule; ``next_ms`` is None unless it fires again."""

    id: str
    schedule: Schedule
    state: ScheduleState
    next_ms: int | None


class FoundSchedules(msgspec.Struct, tag="found-schedules", frozen=True):
    """By id."""

    schedules: tuple[DescribedSchedule, ...]


class Moving(msgspec.Struct, tag="is-moving", frozen=True):
    """While a batch is on its way, nobody but its partition knows whether it has arrived."""

    is_moving: bool


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """Pending and failed messages, and schedules."""

    pending: int
    failed: int
    schedules: int


Reply = Added | NeedsProducerId | Done | Found | FoundSchedules | Moving | Counted
