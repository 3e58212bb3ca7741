"""Handles schedules: creates, lists, describes, pauses and deletes them.

Leaves to others: when schedules fire, and the delivery of their messages (``delayed``).
"""

from __future__ import annotations

import re

from aiohttp import web
from msgspec import UNSET
from msgspec.structs import replace

from api.http import pagination
from api.http.bodies import read_json
from api.http.routes import LIMIT, PAGE_TOKEN, Call, Parameter, Route, json_response
from api.resources import delays, json_records
from api.resources.json_records import Placed
from api.resources.json_values import ABSENT, SHOW, headers_in_json, key_in_json
from delayed.decisions import DUE_MS_MAX
from delayed.records import Missed, Schedule
from delayed.requests import CreateSchedule, DescribedSchedule
from delayed.scheduling import headers_of, is_same
from partitions.metadata.image import TopicInfo
from raftlog import errors
from raftlog.errors import InvalidRequest, ScheduleNotFound, TopicNotFound
from raftlog.records.batch import batch_too_large
from raftlog.records.builder import Record
from raftlog.wire import schedules as wire
from raftlog.wire.schedules import SCHEDULE_BYTES_MAX

_TOKEN = re.compile(r"([0-9a-f]{4})([A-Za-z0-9._-]{1,249})")


async def create(call: Call) -> web.StreamResponse:
    """Create a schedule; an equal request with the same id returns the existing schedule."""
    wanted = await read_json(call, wire.CreateSchedule)
    name = f"{call.services.rng.getrandbits(96):024x}" if wanted.schedule_id is None else wanted.schedule_id
    if not pagination.NAMES.fullmatch(name):
        raise InvalidRequest(
            f"schedule_id is {name[:64]!r}; send 1 to 249 letters, digits, dots, underscores and hyphens",
            field="schedule_id",
        )
    named = wanted.record.partition
    topic, record = await _topic(call, wanted.topic, named or 0), _record_of(wanted)
    schedule = Schedule(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        partition=-1 if named is None else named,
        cron=wanted.cron,
        time_zone=wanted.time_zone,
        missed=Missed(wanted.missed),
        created_ms=0,
        after_ms=0,
        value=record.value,
        key=record.key,
        headers=record.headers,
    )
    request = CreateSchedule(id=name, schedule=schedule, names_partition=named is not None)
    found = None
    try:
        partition = _placed(call, topic, wanted, record, name)
    except InvalidRequest:
        found = None if wanted.schedule_id is None else await _created_before(call, request)
        if found is None:
            raise
    else:
        request = replace(request, schedule=replace(schedule, partition=partition))
        timeout_ms = call.services.limits.control_timeout_ms
        found = await call.services.delayed.create_schedule(request, timeout_ms)
    return json_response(_body(found), 201, {"Location": wire.DESCRIBE.at(schedule_id=found.id)})


async def list_schedules(call: Call) -> web.StreamResponse:
    """List all schedules, or the schedules of a topic."""
    limit = min(wire.SHOWN_MAX, pagination.LIMIT.of(call.query, "limit"))
    after = _after(call.query.get("page_token"))
    service, timeout_ms = call.services.delayed, call.services.limits.control_timeout_ms
    found = await service.list_schedules(call.query.get("topic"), after, limit + 1, timeout_ms)
    following = None
    if len(found) > limit:
        partition, last = found[limit - 1]
        following = f"{partition:04x}{last.id}"
    return json_response(wire.ScheduleList([_body(one) for _, one in found[:limit]], following))


async def get_schedule(call: Call) -> web.StreamResponse:
    """Describe one schedule."""
    found = await call.services.delayed.read_schedule(_name(call), call.services.limits.control_timeout_ms)
    return json_response(_body(found))


async def change(call: Call) -> web.StreamResponse:
    """Pause a schedule, or resume it from now on."""
    name, wanted = _name(call), await read_json(call, wire.ChangeSchedule)
    timeout_ms = call.services.limits.control_timeout_ms
    return json_response(_body(await call.services.delayed.pause_schedule(name, wanted.paused, timeout_ms)))


async def delete_schedule(call: Call) -> web.StreamResponse:
    """Delete a schedule."""
    await call.services.delayed.delete_schedule(_name(call), call.services.limits.control_timeout_ms)
    return web.Response(status=204)


async def _topic(call: Call, name: str, partition: int) -> TopicInfo:
    """Return the topic of a schedule. The controller is asked before the topic, or its partition, counts as
    missing.

    Raises ``TopicNotFound``.
    """
    await call.services.topics.hear_of([(name, partition)])
    found = call.services.topics.topic_here(name)
    if found is None:
        raise TopicNotFound(f"there is no topic {name[:250]!r}; GET /v1/topics lists them", topic=name[:250])
    return found


async def _created_before(call: Call, request: CreateSchedule) -> DescribedSchedule | None:
    """Return the schedule that an equal earlier request has created, when its topic still allowed it; None if
    there is no such schedule.
    """
    try:
        timeout_ms = call.services.limits.control_timeout_ms
        found = await call.services.delayed.read_schedule(request.id, timeout_ms)
    except ScheduleNotFound:
        return None
    return found if is_same(found.schedule, request) else None


def _record_of(wanted: wire.CreateSchedule) -> Record:
    """Return the record that the schedule stores at each instant. Raises ``InvalidRequest`` for a record that
    no topic accepts.
    """
    for field in ("delay", "deliver_at", "timestamp"):
        if getattr(wanted.record, field) is not None:
            raise InvalidRequest(
                f"record/{field}: the cron expression determines the time; omit this field",
                field=f"record/{field}",
            )
    try:
        record = json_records.record_of(wanted.record)
    except InvalidRequest as wrong:
        raise _in_record(wrong) from None
    size_bytes = json_records.size_of(record)
    if size_bytes > SCHEDULE_BYTES_MAX:
        raise batch_too_large(size_bytes, 1, SCHEDULE_BYTES_MAX)
    return record


def _placed(call: Call, topic: TopicInfo, wanted: wire.CreateSchedule, record: Record, name: str) -> int:
    """Choose the partition of a record that the topic accepts now. Raises ``InvalidRequest``."""
    try:
        _, partition, _ = json_records.place(wanted.record, topic.writable_partitions, None, None)
    except InvalidRequest as wrong:
        raise _in_record(wrong) from None
    whole = replace(record, headers=(*record.headers, *headers_of(name, DUE_MS_MAX)))
    delays.check_records(call, topic, [Placed(whole, partition)])
    return call.services.rng.randrange(topic.writable_partitions) if partition is None else partition


def _in_record(wrong: InvalidRequest) -> InvalidRequest:
    field = f"record/{wrong.details.get('field', '')}"
    return InvalidRequest(f"{field}: {wrong}", field=field)


def _name(call: Call) -> str:
    name = call.match_info["schedule_id"]
    if not pagination.NAMES.fullmatch(name):
        raise errors.ScheduleNotFound(f"there is no schedule {name[:64]!r}; GET /v1/schedules lists them")
    return name


def _after(token: str | None) -> tuple[int, str]:
    if token is None:
        return 0, ""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise InvalidRequest(
            f"page_token is {token[:64]!r}; send the next_page_token of the previous page unchanged",
            field="page_token",
        )
    return int(found[1], 16), found[2]


def _body(found: DescribedSchedule) -> wire.ScheduleDescription:
    schedule = found.schedule
    key, key_encoding = key_in_json(schedule.key)
    value, encoding = ABSENT if schedule.value is None else SHOW["auto"](schedule.value, 0)
    plain, tags, raw = headers_in_json(schedule.headers)
    return wire.ScheduleDescription(
        schedule_id=found.id,
        topic=schedule.topic,
        partition=schedule.partition,
        cron=schedule.cron,
        time_zone=schedule.time_zone,
        missed=schedule.missed.value,
        state=found.state,
        created_at=schedule.created_ms,
        next_at=found.next_ms,
        last_at=None if schedule.fired_ms < 0 else schedule.fired_ms,
        key=key,
        key_encoding=key_encoding,
        value=value,
        encoding=encoding,
        headers=plain,
        headers_raw=raw,
        tags=tags,
        reason=schedule.failed or UNSET,
    )


_ID = Parameter("schedule_id", "the id of a schedule", place="path")

ROUTES = (
    Route(wire.CREATE, create),
    Route(
        wire.LIST, list_schedules, (Parameter("topic", "only schedules for this topic"), LIMIT, PAGE_TOKEN)
    ),
    Route(wire.DESCRIBE, get_schedule, (_ID,)),
    Route(wire.CHANGE, change, (_ID,)),
    Route(wire.DELETE, delete_schedule, (_ID,)),
)
