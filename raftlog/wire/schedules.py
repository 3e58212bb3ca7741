"""The operations on schedules, with their bodies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog import errors
from raftlog.wire import limits
from raftlog.wire.bodies import Answer, Brief, Encoding, NewRecord, Request, matching
from raftlog.wire.operation import STORED, Leader, Nothing, Operation

SHOWN_MAX = 100  # per page
SCHEDULE_BYTES_MAX = 16 << 10  # of a schedule's record, which all replicas keep in memory

Missed = Literal["skip", "once", "all"]
StateName = Literal["active", "paused", "failed"]
TopicName = Annotated[str, matching(limits.NAME_PATTERN)]
Cron = Annotated[str, matching(limits.CRON_PATTERN)]
Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": limits.NAME_PATTERN})]


class CreateSchedule(Request):
    """Body of ``POST /v1/schedules``. Without ``schedule_id`` a broker chooses the id."""

    topic: TopicName
    cron: Cron
    record: NewRecord
    time_zone: Brief = "UTC"
    missed: Missed = "once"
    schedule_id: Name | None = None


class ChangeSchedule(Request):
    """Body of ``PATCH`` of a schedule."""

    paused: bool


class ScheduleDescription(Answer, omit_defaults=True, kw_only=True):
    """A schedule with its record. ``reason`` says why a schedule with the state ``failed`` has failed."""

    schedule_id: str
    topic: str
    partition: int
    cron: str
    time_zone: str
    missed: Missed
    state: StateName
    created_at: int
    next_at: int | None
    last_at: int | None
    key: str | None
    value: msgspec.Raw
    encoding: Encoding
    headers: dict[str, str | None]
    tags: list[str]
    key_encoding: Literal["base64"] | UnsetType = UNSET
    headers_raw: list[tuple[str, str | None]] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ScheduleList(Answer):
    """A page of schedules."""

    items: list[ScheduleDescription]
    next_page_token: str | None = None


CREATE = Operation(
    name="schedules.create",
    request="POST /v1/schedules",
    summary="Create a schedule",
    text=(
        "Its record is stored in the topic at each instant of a cron expression. With a `schedule_id` the "
        "request may be repeated: an equal schedule is not created twice."
    ),
    leader=Leader.DELAYED,
    body=CreateSchedule,
    answer=ScheduleDescription,
    success={201: "the schedule"},
    errors=(*STORED, errors.TopicNotFound, errors.Conflict, errors.InvalidRecord),
)

LIST = Operation(
    name="schedules.list",
    request="GET /v1/schedules",
    summary="List schedules",
    text=f"With their records; at most {SHOWN_MAX} in a page.",
    leader=Leader.DELAYED,
    answer=ScheduleList,
    success={200: "a page"},
    errors=(errors.Overloaded,),
)

DESCRIBE = Operation(
    name="schedules.describe",
    request="GET /v1/schedules/{schedule_id}",
    summary="Describe a schedule",
    text="With its record, its next instant and the last instant that has fired.",
    leader=Leader.DELAYED,
    answer=ScheduleDescription,
    success={200: "the schedule"},
    errors=(
        errors.ScheduleNotFound,
        errors.Overloaded,
    ),
)

CHANGE = Operation(
    name="schedules.change",
    request="PATCH /v1/schedules/{schedule_id}",
    summary="Pause or resume a schedule",
    text="Instants during a pause never fire. `paused: false` also resumes a failed schedule.",
    leader=Leader.DELAYED,
    body=ChangeSchedule,
    answer=ScheduleDescription,
    success={200: "the schedule"},
    errors=(*STORED, errors.ScheduleNotFound),
)

DELETE = Operation(
    name="schedules.delete",
    request="DELETE /v1/schedules/{schedule_id}",
    summary="Delete a schedule",
    text="It no longer fires; messages that it has fired are delivered. May be repeated for 10 minutes.",
    leader=Leader.DELAYED,
    answer=Nothing,
    success={204: "the schedule is deleted"},
    errors=(*STORED, errors.ScheduleNotFound),
)
