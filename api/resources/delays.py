"""Handles delayed messages: produces, lists, describes, reschedules and cancels them.

Leaves to others: when messages are due, and their delivery to partitions (``delayed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web
from msgspec import UNSET

from api.http import pagination
from api.http.bodies import read_json
from api.http.idempotency import refuse_key
from api.http.producers import producer_of
from api.http.routes import LIMIT, PAGE_TOKEN, Call, Parameter, Route, json_response
from api.resources import json_records
from api.resources.json_records import Due, Placed, due_of
from api.resources.json_values import ABSENT, SHOW, headers_in_json, key_in_json
from delayed.records import ID_BYTES, TOPIC, Message
from delayed.requests import Add, Described, NewMessage, When
from delayed.service import MessageId
from partitions.metadata.image import TopicInfo
from partitions.metadata.topic_config import compacts, deletes, number
from partitions.values import QUORUM, Acks
from raftlog import errors
from raftlog.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from raftlog.records.batch import HEADER_BYTES, batch_too_large
from raftlog.wire import bodies
from raftlog.wire import delays as wire
from raftlog.wire.delays import DELAYED_BYTES_MAX, DELAYED_RECORDS_MAX

KEYS_BYTES_MAX = 1 << 20  # bytes of keys in one page, which has complete keys; one more key may exceed it
QUERY = ("delay", "deliver_at")


def in_query(call: Call) -> bool:
    """Return whether the query of a produce delays the records."""
    return bool(call.query) and any(name in call.query for name in QUERY)


async def produce(
    call: Call, topic: TopicInfo, placed: Sequence[Placed], *, acks: Acks, timeout_ms: int
) -> web.Response:
    """Accept the records of a delayed produce, all or none."""
    _check(call, topic, placed, acks)
    due = _due_of_each(placed, _due_of_query(call.query))
    groups = json_records.spread(placed, topic.writable_partitions, call.services.rng)
    partitions = {place: partition for partition, places in groups.items() for place in places}
    ids = [call.services.rng.randbytes(ID_BYTES) for _ in placed]
    messages = tuple(
        NewMessage(
            ids[place],
            partitions[place],
            When(*due[place]),
            item.record.value,
            item.record.key,
            item.record.headers,
            item.record.timestamp_ms,
        )
        for place, item in enumerate(placed)
    )
    request = Add(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        messages=messages,
        delay_ms_max=_retention_ms(call, topic),
    )
    spread = call.services.rng.getrandbits(32)
    partition, added = await call.services.delayed.add(request, spread, timeout_ms)
    receipts = [
        bodies.RecordReceipt(
            partition=partitions[place], delayed_id=str(MessageId(partition, id_)), deliver_at=due_ms
        )
        for place, (id_, due_ms) in enumerate(zip(ids, added.due_ms, strict=True))
    ]
    durability = bodies.RecordDurability(str(QUORUM), True, True, _majority(call, partition))
    return json_response(bodies.Produced(receipts, durability))


async def list_messages(call: Call) -> web.StreamResponse:
    """List the delayed messages that are not in their topics yet."""
    limit = min(wire.SHOWN_MAX, pagination.LIMIT.of(call.query, "limit"))
    token = call.query.get("page_token")
    after = None if token is None else _token(token)
    service, timeout_ms = call.services.delayed, call.services.limits.control_timeout_ms
    found = await service.list_some(call.query.get("topic"), after, limit + 1, timeout_ms)
    items: list[wire.DelayedMessage] = []
    following, keys_bytes = str(found[limit - 1][0]) if len(found) > limit else None, 0
    for shown, (which, one) in enumerate(found[:limit], 1):
        try:
            message = await service.message(which, one, timeout_ms)
        except errors.DelayedNotFound:
            continue  # delivered or cancelled during the request
        items.append(_body(which, one, message))
        keys_bytes += len(message.key or b"")
        if keys_bytes > KEYS_BYTES_MAX and shown < len(found):
            following = str(which)
            break
    return json_response(wire.DelayedList(items, following))


async def get_message(call: Call) -> web.StreamResponse:
    """Describe one delayed message with its record."""
    which, timeout_ms = _named(call), call.services.limits.control_timeout_ms
    found = await call.services.delayed.read(which, timeout_ms)
    message = await call.services.delayed.message(which, found, timeout_ms)
    return json_response(_whole_body(which, found, message))


async def reschedule(call: Call) -> web.StreamResponse:
    """Change the time at which a message is due."""
    which, wanted = _named(call), await read_json(call, wire.RescheduleMessage)
    due = due_of(wanted.delay, wanted.deliver_at)
    if due is None:
        raise InvalidRequest("send delay or deliver_at", field="deliver_at")
    service, timeout_ms = call.services.delayed, call.services.limits.control_timeout_ms
    before = await service.read(which, timeout_ms)
    message = await service.message(
        which, before, timeout_ms
    )  # read before the change, because no step after the change may fail
    topic = await call.services.topics.topic(before.waiting.topic)
    found = await service.reschedule(
        which,
        When(*due),
        delay_ms_max=-1 if topic is None else _retention_ms(call, topic),
        timeout_ms=timeout_ms,
    )
    return json_response(_whole_body(which, found, message))


async def cancel(call: Call) -> web.StreamResponse:
    """Cancel a message; the response is 204 if the message was not delivered before."""
    which = _named(call)
    await call.services.delayed.cancel(which, call.services.limits.control_timeout_ms)
    return web.Response(status=204)


def _check(call: Call, topic: TopicInfo, placed: Sequence[Placed], acks: Acks) -> None:
    refuse_key(call.request, "cannot be combined with a delay yet: omit the header")
    if producer_of(call.request) is not None:
        raise InvalidRequest(
            "records of a producer or of a transaction cannot be delayed; omit the producer's headers",
            field="delay",
        )
    if acks != QUORUM:
        raise InvalidRequest(f"a delay needs acks=quorum, not acks={acks}; omit acks", field="acks")
    if len(placed) > DELAYED_RECORDS_MAX:
        raise RecordTooLarge(
            f"one request takes at most {DELAYED_RECORDS_MAX} delayed records; send several requests",
            limit_records=DELAYED_RECORDS_MAX,
        )
    check_records(call, topic, placed)


def check_records(call: Call, topic: TopicInfo, placed: Sequence[Placed]) -> None:
    """Check that a topic will accept these records when they are due. Raises ``InvalidRequest``."""
    if topic.is_internal:
        raise InvalidRequest(
            f"{topic.name} is an internal topic; delay records of another topic", field="topic"
        )
    _check_keys(call, topic, placed)
    sizes = [json_records.size_of(item.record) for item in placed]
    bytes_max = call.services.batch_bytes_max(topic)
    if max(sizes) + HEADER_BYTES > bytes_max:
        raise batch_too_large(max(sizes) + HEADER_BYTES, 1, bytes_max)
    if sum(sizes) > DELAYED_BYTES_MAX:
        raise batch_too_large(sum(sizes), len(placed), DELAYED_BYTES_MAX)


def _check_keys(call: Call, topic: TopicInfo, placed: Sequence[Placed]) -> None:
    """Raise ``InvalidRecord`` for a record without a key if the topic is compacted: it would refuse the
    record when it is due.
    """
    if not compacts(call.services.config_of(topic)):
        return
    missing = [place for place, item in enumerate(placed) if item.record.key is None]
    if missing:
        what = f"/records/{missing[0]}: has no key, but the topic is compacted: send a key with every record"
        raise InvalidRecord(what, errors=[what])


def _due_of_query(query: Mapping[str, str]) -> Due | None:
    delay = query.get("delay")
    whole = (
        int(delay) if delay is not None and delay.isascii() and delay.isdigit() and len(delay) < 16 else None
    )
    return due_of(delay if whole is None else whole, query.get("deliver_at"))


def _due_of_each(placed: Sequence[Placed], default: Due | None) -> list[Due]:
    due = [item.due or default for item in placed]
    missing = [place for place, one in enumerate(due) if one is None]
    if missing:
        what = f"/records/{missing[0]}: has no delay, but others have one: send them in separate requests"
        raise InvalidRecord(what, errors=[what])
    return [one for one in due if one is not None]


def _majority(call: Call, partition: int) -> int:
    """Return the number of replicas that have fsynced an accepted message: a majority."""
    delayed = call.services.controller.image.topics.get(TOPIC)
    return 1 if delayed is None else len(delayed.partitions[partition].replicas) // 2 + 1


def _retention_ms(call: Call, topic: TopicInfo) -> int:
    config = call.services.config_of(topic)
    return number(config, "retention.ms") if deletes(config) else -1


def _named(call: Call) -> MessageId:
    return MessageId.parse(call.match_info["delayed_id"])


def _token(text: str) -> MessageId:
    try:
        return MessageId.parse(text)
    except errors.DelayedNotFound:
        raise InvalidRequest(
            f"page_token is {text[:64]!r}; send the next_page_token of the previous page unchanged",
            field="page_token",
        ) from None


def _body(which: MessageId, found: Described, message: Message) -> wire.DelayedMessage:
    key, key_encoding = key_in_json(message.key)
    return wire.DelayedMessage(
        str(which),
        message.topic,
        message.partition,
        found.waiting.due_ms,
        found.state,
        len(message.value or b""),
        key,
        key_encoding,
        found.reason or UNSET,
    )


def _whole_body(which: MessageId, found: Described, message: Message) -> wire.DelayedMessageDescription:
    short = _body(which, found, message)
    value, encoding = ABSENT if message.value is None else SHOW["auto"](message.value, 0)
    plain, tags, raw = headers_in_json(message.headers)
    return wire.DelayedMessageDescription(
        *(getattr(short, name) for name in wire.DelayedMessage.__struct_fields__),
        value=value,
        encoding=encoding,
        headers=plain,
        headers_raw=raw,
        tags=tags,
        accepted_at=message.accepted_ms,
    )


_ID = Parameter("delayed_id", "the `delayed_id` of a message", place="path")

ROUTES = (
    Route(wire.LIST, list_messages, (Parameter("topic", "only messages for this topic"), LIMIT, PAGE_TOKEN)),
    Route(wire.DESCRIBE, get_message, (_ID,)),
    Route(wire.RESCHEDULE, reschedule, (_ID,)),
    Route(wire.CANCEL, cancel, (_ID,)),
)
