"""Requests to the coordinators of delayed messages, and their replies.

Every request may be repeated: the broker that sends a request chooses the ids of its messages.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from delayed.pending import Waiting
from delayed.records import Schedule

StateName = Literal["pending", "delivering", "failed"]
ScheduleState = Literal["active", "paused", "failed"]


class When(msgspec.Struct, frozen=True, array_like=True):
    """The due time of a message: a delay by the coordinator's clock, or a time, in milliseconds.

    The unused field is negative.
    """

    delay_ms: int = -1
    at_ms: int = -1


class NewMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message to accept, with its id and due time."""

    id: bytes
    partition: int
    when: When
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


class Add(msgspec.Struct, tag="add", frozen=True, kw_only=True):
    """Accept messages for one topic, all or none.

    The reply is ``NeedsProducerId`` if the partition of ``__delayed`` has no producer id yet.
    ``delay_ms_max`` is the retention of the topic, or -1.
    """

    topic: str
    topic_id: str
    messages: tuple[NewMessage, ...]
    delay_ms_max: int = -1
    new_producer_id: int = -1


class Reschedule(msgspec.Struct, tag="reschedule", frozen=True, kw_only=True):
    """Give a pending or failed message another due time."""

    id: bytes
    when: When
    delay_ms_max: int = -1


class Cancel(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    """Cancel a pending or failed message."""

    id: bytes


class Read(msgspec.Struct, tag="read", frozen=True, kw_only=True):
    """Describe one pending or failed message."""

    id: bytes


class ReadMany(msgspec.Struct, tag="list", frozen=True, kw_only=True):
    """Read up to ``count_max`` messages after an id, sorted by id: of one topic, or of all topics."""

    topic: str | None
    after: bytes
    count_max: int


class CreateSchedule(msgspec.Struct, tag="create-schedule", frozen=True, kw_only=True):
    """Create a schedule. A repeated request with equal contents changes nothing. Replies as to ``Add``.

    The coordinator sets the times of ``schedule``. The partition of ``schedule`` belongs to its contents if
    ``names_partition``; otherwise a broker has chosen it among the topic's partitions.
    """

    id: str
    schedule: Schedule
    new_producer_id: int = -1
    names_partition: bool = False


class PauseSchedule(msgspec.Struct, tag="pause-schedule", frozen=True, kw_only=True):
    """Pause a schedule, or resume a paused or failed schedule from now on."""

    id: str
    is_paused: bool


class DeleteSchedule(msgspec.Struct, tag="delete-schedule", frozen=True, kw_only=True):
    """Delete a schedule. Messages that it has fired stay."""

    id: str


class ReadSchedule(msgspec.Struct, tag="schedule", frozen=True, kw_only=True):
    """Describe one schedule."""

    id: str


class ReadSchedules(msgspec.Struct, tag="schedules", frozen=True, kw_only=True):
    """Read up to ``count_max`` schedules after an id, sorted by id: of one topic, or of all topics."""

    topic: str | None
    after: str
    count_max: int


ScheduleRequest = CreateSchedule | PauseSchedule | DeleteSchedule | ReadSchedule | ReadSchedules


class ReadMoving(msgspec.Struct, tag="moving", frozen=True, kw_only=True):
    """Ask whether messages are in delivery to a partition. The reply is ``Moving``."""

    topic: str
    partition: int


class CountTopic(msgspec.Struct, tag="count", frozen=True, kw_only=True):
    """Count the messages and schedules of a topic. The reply is ``Counted``."""

    topic: str
    topic_id: str


Request = Add | Reschedule | Cancel | Read | ReadMany | ReadMoving | CountTopic | ScheduleRequest


READS: Final = (Read, ReadMany, ReadMoving, CountTopic, ReadSchedule, ReadSchedules)
"""Classes of requests that write nothing."""


class Added(msgspec.Struct, tag="added", frozen=True):
    """The due time of each message in milliseconds, in the order of the request."""

    due_ms: tuple[int, ...]


class NeedsProducerId(msgspec.Struct, tag="needs-producer-id", frozen=True):
    """The request was not carried out: repeat it with a new producer id."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """Reply to a request that was carried out and has no other result."""


class Described(msgspec.Struct, frozen=True):
    """Description of one pending or failed message."""

    id: bytes
    waiting: Waiting
    state: StateName
    reason: str = ""


class Found(msgspec.Struct, tag="found", frozen=True):
    """Descriptions of messages, sorted by id."""

    messages: tuple[Described, ...]


class DescribedSchedule(msgspec.Struct, frozen=True):
    """Description of one schedule; ``next_ms`` is None unless it fires again."""

    id: str
    schedule: Schedule
    state: ScheduleState
    next_ms: int | None


class FoundSchedules(msgspec.Struct, tag="found-schedules", frozen=True):
    """Descriptions of schedules, sorted by id."""

    schedules: tuple[DescribedSchedule, ...]


class Moving(msgspec.Struct, tag="is-moving", frozen=True):
    """Whether a batch is in delivery to the partition.

    Only that partition knows whether the batch has arrived.
    """

    is_moving: bool


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """Numbers of the pending messages, failed messages and schedules of a topic."""

    pending: int
    failed: int
    schedules: int


Reply = Added | NeedsProducerId | Done | Found | FoundSchedules | Moving | Counted
