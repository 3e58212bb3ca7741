"""The bodies of requests about schedules and of their responses."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog.wire import limits
from raftlog.wire.bodies import Answer, Brief, Encoding, NewRecord, Request, matching

SCHEDULE_BYTES_MAX = 16 << 10  # of its record, which all replicas keep in memory

Missed = Literal["skip", "once", "all"]
StateName = Literal["active", "paused", "failed"]
TopicName = Annotated[str, matching(limits.NAME_PATTERN)]
Cron = Annotated[str, matching(limits.CRON_PATTERN)]
Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": limits.NAME_PATTERN})]


class CreateSchedule(Request):
    """Body of ``POST /v1/schedules``. A broker chooses the id where none is given."""

    topic: TopicName
    cron: Cron
    record: NewRecord
    time_zone: Brief = "UTC"
    missed: Missed = "once"
    schedule_id: Name | None = None


class ChangeSchedule(Request):
    """Body of ``PATCH`` of a schedule."""

    paused: bool


class ScheduleBody(Answer, omit_defaults=True, kw_only=True):
    """A schedule with its record. ``reason`` says why one has ``failed``."""

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

    items: list[ScheduleBody]
    next_page_token: str | None = None
