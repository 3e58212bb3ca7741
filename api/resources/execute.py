"""Handles ``POST /v1/transactions:execute``: records of several topics and offsets of a group, all or none.

The whole request is validated before the transaction is opened. Leaves to others: the transaction
(``one_shot``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from aiohttp import web

from api.http.bodies import decoded_json, read_body, unsupported
from api.http.idempotency import key_of
from api.http.json_bodies import WHOLE_BYTES_MAX, decode_json
from api.http.parameters import media_type_of
from api.http.producers import own_id
from api.http.requests import client_of
from api.http.routes import Call, Route, duration
from api.resources import json_records, one_shot
from api.resources.group_bodies import commit_of
from api.resources.json_records import Placed
from api.resources.produce import IDEMPOTENCY_KEY
from api.resources.produce_records import by_newest_metadata, records_max
from api.resources.receipts import stored_ms
from groups.requests import Commit
from partitions.metadata.image import TopicInfo
from raftlog import errors
from raftlog.errors import InvalidRequest, RaftlogError, TopicNotFound
from raftlog.node.computing import computed
from raftlog.types import TopicPartition
from raftlog.wire import media_types
from raftlog.wire import transactions as wire
from raftlog.wire.bodies import Request
from raftlog.wire.groups import AddOffsets
from transactions.decisions import PARTITIONS_MAX
from transactions.records import Handle

Targets = dict[TopicPartition, list[int]]
"""The indexes of the request's records, by the partition that they are appended to."""


class _Parts(Request):
    """The body of the request, in which records and offsets are not decoded yet."""

    transactional_id: wire.TransactionalId | None = None
    group_offsets: msgspec.Raw = msgspec.Raw(b"null")
    records: list[msgspec.Raw] = msgspec.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A decoded and valid request."""

    topics: Mapping[str, TopicInfo]
    records: Sequence[tuple[str, Placed]]  # each record with its topic


async def execute(call: Call) -> web.StreamResponse:
    """Open a transaction, add all records and offsets to it, commit it, and respond."""
    key, limits = key_of(call.request), call.services.limits
    timeout_ms = call.capped_ms("timeout", limits.produce_timeout_ms_max, limits.produce_timeout_ms_default)
    if (media_type := media_type_of(call.request)) != media_types.JSON:
        raise unsupported(media_type, (media_types.JSON,))
    with call.admission.bodies.hold(client_of(call.request), 0) as held:
        body = await read_body(call.request, held, limits)
        is_short = len(body) <= WHOLE_BYTES_MAX
        parts = await computed(partial(_parts_of, body, records_max(call, key)), is_short=is_short)
        name = parts.transactional_id  # selects the coordinator, which knows only its own keys
        scope = call.request.path if name is None else f"{call.request.path} {name}"
        claim = None if key is None else await one_shot.claimed(call, key, body, scope=scope)
        del body
        now_ms = call.services.clock.wall_ms()
        try:
            wanted, offsets = await _validated(call, parts, is_short=is_short)
            targets = _targets(call, wanted)
            batches = await computed(partial(_batches, call, wanted, targets, now_ms), is_short=is_short)
        except RaftlogError as error:
            return await one_shot.first_answer_or(call, error, claim, name)
        created_ms = [placed.record.timestamp_ms for _, placed in wanted.records]
        topics = wanted.topics
        del parts, wanted  # from here on the batches account for the size of the body
        try:
            return await one_shot.run(
                call,
                batches,
                partial(_executed, targets, created_ms, now_ms),
                offsets=offsets,
                claim=claim,
                timeout_ms=timeout_ms,
                transactional_id=name,
            )
        except errors.PartitionDecommissioned as refused:
            raise by_newest_metadata(topics[str(refused.details["topic"])], refused) from refused


async def _validated(call: Call, parts: _Parts, *, is_short: bool) -> tuple[_Wanted, Commit | None]:
    records = await computed(partial(_records_of, parts), is_short=is_short)
    await call.services.topics.hear_of({(record.topic, record.partition or 0) for record in records})
    offsets = await _offsets_of(call, parts)
    return await computed(partial(_placed, call, records), is_short=is_short), offsets


def _parts_of(body: bytes | bytearray, count_max: int) -> _Parts:
    json_records.count_records(body, count_max, InvalidRequest)
    parts = decode_json(body, _Parts)
    if parts.records or bytes(parts.group_offsets) == b"null":
        json_records.check_count(len(parts.records), count_max)
    if parts.transactional_id is not None:
        own_id(parts.transactional_id, "transactional_id")
    return parts


def _records_of(parts: _Parts) -> list[wire.TopicRecord]:
    return list(json_records.decoded(map(bytes, parts.records), wire.TopicRecord))


async def _offsets_of(call: Call, parts: _Parts) -> Commit | None:
    text = bytes(parts.group_offsets)
    if text == b"null":
        return None
    added = await decoded_json(text, AddOffsets, prefix="/group_offsets")
    commit = await commit_of(call, added.group, added)
    if not commit.offsets:
        return None  # all offsets were of removed partitions
    await call.services.group_offsets.check(commit.offsets)
    return commit


def _placed(call: Call, records: Sequence[wire.TopicRecord]) -> _Wanted:
    image, trace = call.services.controller.image, call.request.headers.get("traceparent")
    topics = {record.topic: image.topics[record.topic] for record in records if record.topic in image.topics}
    for number, record in enumerate(records):
        pointer, name = f"/records/{number}/topic", record.topic[:250]
        if name not in topics:
            raise TopicNotFound(
                f"{pointer}: there is no topic {name!r}; GET /v1/topics lists them", topic=name
            )
        if topics[name].is_internal:
            raise InvalidRequest(
                f"{pointer}: {name} is an internal topic; write to another topic", field=pointer
            )

    def place(record: wire.TopicRecord) -> Placed:
        topic = topics[record.topic]
        placed = json_records.place(record, topic.writable_partitions, None, trace, len(topic.partitions))
        if placed.due is not None:
            raise InvalidRequest(
                "a record of a transaction cannot be delayed; produce it in a separate request", field="delay"
            )
        return placed

    placed = json_records.placed_by(place, records)
    named = [(record.topic, one) for record, one in zip(records, placed, strict=True)]
    return _Wanted(topics, named)


def _targets(call: Call, wanted: _Wanted) -> Targets:
    """Choose a partition for each record. Records of a topic that name no partition and have no key share one
    partition, as in a produce.
    """
    by_topic: dict[str, list[int]] = {}
    for number, (topic, _) in enumerate(wanted.records):
        by_topic.setdefault(topic, []).append(number)
    targets: Targets = {}
    for topic, numbers in by_topic.items():
        placed = [wanted.records[number][1] for number in numbers]
        groups = json_records.spread(placed, wanted.topics[topic].writable_partitions, call.services.rng)
        for partition, places in groups.items():
            targets[TopicPartition(topic, partition)] = [numbers[place] for place in places]
    if len(targets) > PARTITIONS_MAX:
        raise InvalidRequest(
            f"records: a transaction has at most {PARTITIONS_MAX} partitions, but the records have "
            f"{len(targets)}; send several requests",
            field="/records",
        )
    return targets


def _batches(call: Call, wanted: _Wanted, targets: Targets, now_ms: int) -> dict[TopicPartition, list[bytes]]:
    return {
        target: one_shot.built(
            call, wanted.topics[target.topic], [wanted.records[number][1] for number in numbers], now_ms
        )
        for target, numbers in targets.items()
    }


def _executed(
    targets: Targets,
    created_ms: Sequence[int | None],
    now_ms: int,
    handle: Handle,
    receipts: one_shot.Receipts,
) -> wire.ExecutedTransaction:
    found: dict[int, wire.TopicReceipt] = {}
    for target, numbers in targets.items():
        receipt = receipts[target]
        for offset, number in enumerate(numbers, receipt.base_offset):
            timestamp = stored_ms(receipt, created_ms[number], now_ms)
            found[number] = wire.TopicReceipt(target.topic, target.partition, offset, timestamp)
    return wire.ExecutedTransaction(
        "committed",
        [found[number] for number in range(len(created_ms))],
        str(handle),
        handle.producer_id,
        handle.epoch,
    )


ROUTES = (
    Route(
        wire.EXECUTE,
        execute,
        (
            duration(
                "timeout",
                "longest duration of the transaction, such as `5s`",
                lambda limits: limits.produce_timeout_ms_default,
            ),
            IDEMPOTENCY_KEY,
        ),
    ),
)
