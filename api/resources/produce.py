"""Produce: records of JSON, NDJSON, raw bodies and binary batches, to a topic or to one partition.

A request to one partition is atomic and has one status. A request to several partitions returns 200 only if
all succeeded, else 207 with a receipt or a problem for each record. A complete request is stored even if the
client disconnects: an append is never cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from aiohttp import web

from api.http import parameters
from api.http.batching import Part
from api.http.bodies import check_announced, read_body, unsupported
from api.http.idempotency import KEY_PATTERN, key_of, refuse_key
from api.http.producers import Producer, producer_of
from api.http.redirects import redirect_to_leader
from api.http.requests import Request
from api.http.routes import (
    BINARY,
    PARTITION,
    ROUTE,
    TEXT,
    TOPIC,
    Answer,
    BodyType,
    Call,
    Parameter,
    Route,
    duration,
    json_answer,
    json_response,
)
from api.resources import delays, json_records
from api.resources.json_records import Placed
from api.resources.one_shot import claimed, first_answer_or, produce_once
from api.resources.receipts import durability_body, produced, receipts_of
from partitions.metadata.image import TopicInfo
from partitions.values import QUORUM, Acks, AcksKind, AppendReceipt
from raftlog import errors
from raftlog.errors import InvalidRecord, InvalidRequest, RaftlogError
from raftlog.node.computing import computed
from raftlog.records.batch import HEADER_BYTES, parse_header
from raftlog.records.builder import Record
from raftlog.types import TopicPartition
from raftlog.wire import bodies, headers, media_types, paths
from raftlog.wire.limits import KEYED_RECORDS_MAX

NOT_YET = ("If-Offset", "Raftlog-Fence")
"""Headers that change the meaning of a produce and that this release does not support."""

RETRY_AFTER_MS: Final = 200


async def produce_to_partition(call: Call) -> web.StreamResponse:
    """Records or batches for one partition."""
    topic, target = call.partition()
    if (other := redirect_to_leader(call, target)) is not None:
        return other
    if parameters.media_type_of(call.request) == media_types.BATCH:
        return await _produce_batches(call, target, call.from_head(_batch_terms))
    return await _produce_records(call, topic, target.partition)


async def produce_to_topic(call: Call) -> web.StreamResponse:
    """Records whose partitions follow from their keys."""
    topic = call.topic()
    if parameters.media_type_of(call.request) == media_types.BATCH:
        path = paths.PARTITION_RECORDS.replace("{topic}", topic.name)
        raise errors.UnsupportedMediaType(
            f"a binary batch belongs to one partition: POST it to {path}",
            supported=[media_types.JSON, media_types.NDJSON, media_types.OCTET_STREAM],
        )
    try:
        return await _produce_records(call, topic, None)
    except errors.PartitionDecommissioned as refused:
        raise by_newest_metadata(topic, refused) from refused


def by_newest_metadata(topic: TopicInfo, error: RaftlogError) -> RaftlogError:
    """The error for a client that is not to blame: this broker has chosen the partition by old metadata."""
    if not isinstance(error, errors.PartitionDecommissioned):
        return error
    partition = error.details.get("partition")
    if not isinstance(partition, int) or partition >= topic.writable_partitions:
        return error
    return errors.NoLeader(
        f"{topic.name}/{partition} is decommissioned, of which this broker did not know yet; retry",
        retry_after_ms=RETRY_AFTER_MS,
    )


class _BatchTerms(NamedTuple):
    """What the head of a produce of batches says."""

    acks: Acks
    timeout_ms: int
    capped: dict[str, str] | None  # see ``Call``
    producer: Producer | None


def _batch_terms(call: Call) -> _BatchTerms:
    """Raises ``InvalidRequest``."""
    _refuse_unknown_meaning(call.request)
    refuse_key(
        call.request,
        "is not for binary batches, which have a producer and a sequence in their headers: POST "
        f"{paths.PRODUCERS} gives a producer",
    )
    producer = producer_of(call.request)
    if producer is not None and producer.is_sequenced:
        raise InvalidRequest(
            f"{headers.PRODUCER_SEQUENCE} is for JSON; a binary batch has its producer in its header",
            field=headers.PRODUCER_SEQUENCE,
        )
    if delays.in_query(call):
        raise InvalidRequest("binary batches cannot be delayed; send records as JSON", field="delay")
    acks, timeout_ms = _acks_and_timeout(call)
    return _BatchTerms(acks, timeout_ms, call.capped, producer)


async def _produce_batches(call: Call, target: TopicPartition, terms: _BatchTerms) -> web.Response:
    acks, timeout_ms, call.capped, producer = terms
    with call.admission.bodies.hold(call.request.remote or "", 0) as held:
        body = await read_body(call.request, held, call.services.limits)
        if not body:
            raise InvalidRequest("the body is empty; send at least one batch", field="body")
        receipt = await call.services.gateway.append(
            target,
            body,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=None if producer is None else _transaction_of(producer, body),
        )
    if acks.kind is AcksKind.NONE:
        return json_response(bodies.Accepted(receipt.record_count), 202)
    return json_response(
        bodies.BatchesProduced(
            target.partition,
            receipt.base_offset,
            receipt.record_count,
            durability_body(receipt.durability),
            receipt.leader_epoch,
            receipt.timestamp_ms,
            receipt.was_duplicate,
        )
    )


class _RecordTerms(NamedTuple):
    """What the head of a produce of records says."""

    media_type: str
    key: str | None
    producer: Producer | None
    acks: Acks
    timeout_ms: int
    capped: dict[str, str] | None  # see ``Call``
    is_delayed: bool


def _record_terms(call: Call) -> _RecordTerms:
    """Raises ``InvalidRequest``."""
    request = call.request
    _refuse_unknown_meaning(request)
    key, producer = key_of(request), producer_of(request)
    acks, timeout_ms = _acks_and_timeout(call)
    media_type, is_delayed = parameters.media_type_of(request), delays.in_query(call)
    return _RecordTerms(media_type, key, producer, acks, timeout_ms, call.capped, is_delayed)


async def _produce_records(call: Call, topic: TopicInfo, only: int | None) -> web.Response:
    request, services = call.request, call.services
    media_type, key, producer, acks, timeout_ms, call.capped, is_delayed = call.from_head(_record_terms)
    if producer is not None and producer.is_sequenced and only is None:
        raise InvalidRequest(
            f"{headers.PRODUCER_SEQUENCE} needs a partition: sequences are counted per partition; POST to "
            f"{paths.PARTITION_RECORDS.replace('{topic}', topic.name)}",
            field=headers.PRODUCER_SEQUENCE,
        )
    if acks != QUORUM:
        refuse_key(request, f"needs acks=quorum, not acks={acks}: leave out acks, or the key")
    with call.admission.bodies.hold(request.remote or "", 0) as held:
        if media_type not in media_types.PRODUCE:
            check_announced(request, services.limits)
            raise unsupported(media_type, media_types.PRODUCE)
        body = await read_body(request, held, services.limits)
        is_short = len(body) <= json_records.WHOLE_BYTES_MAX
        placed = await computed(
            partial(_records_of, call, topic, only, media_type, body, records_max(call, key)),
            is_short=is_short,
        )
        if is_delayed or any(item.due for item in placed):
            return await delays.produce(call, topic, placed, acks=acks, timeout_ms=timeout_ms)
        claim = None
        if key is not None:  # a topic that is created again has other keys
            claim = await claimed(call, key, body, scope=f"{request.path} {topic.topic_id}")
        now_ms = services.clock.wall_ms()
        part = None
        is_usual = acks == QUORUM and timeout_ms == services.limits.produce_timeout_ms_default
        if producer is None and claim is None and is_usual:
            part = _shared_part(placed, services.batch_bytes_max(topic), now_ms)
        if part is not None:
            return await _append_with_others(call, topic, placed, part)
        del body
        groups = json_records.spread(placed, topic.writable_partitions, services.rng)
        build = partial(
            _batches_of, placed, groups, services.batch_bytes_max(topic), now_ms=now_ms, producer=producer
        )
        try:
            batches = await computed(build, is_short=is_short)
        except errors.RecordTooLarge as error:
            return await first_answer_or(call, error, claim)
        created_ms = [item.record.timestamp_ms for item in placed]
        del placed, build  # the size of the body is now counted by the batches
        if claim is not None:
            describe = partial(receipts_of, call, created_ms, groups, now_ms=now_ms)
            return await produce_once(call, topic.name, batches, describe, claim=claim, timeout_ms=timeout_ms)
        append = partial(
            services.gateway.append,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=None if producer is None else producer.transactional_id,
        )
        outcomes = await _append_all(call, topic, batches, append)
    if acks.kind is AcksKind.NONE:
        return json_response(bodies.Accepted(len(created_ms)), 202)
    return produced(call, created_ms, groups, outcomes, now_ms)


def _batches_of(
    placed: Sequence[Placed],
    groups: Mapping[int, Sequence[int]],
    bytes_max: int,
    *,
    now_ms: int,
    producer: Producer | None,
) -> dict[int, list[bytes]]:
    return {
        partition: json_records.build_batches(
            [placed[number].record for number in numbers],
            bytes_max=bytes_max,
            now_ms=now_ms,
            producer=producer,
        )
        for partition, numbers in groups.items()
    }


def records_max(call: Call, key: str | None) -> int:
    """Of one request. An answer that is kept for a key has a bounded size."""
    count_max = call.services.limits.records_per_request_max
    return count_max if key is None else min(count_max, KEYED_RECORDS_MAX)


def _records_of(
    call: Call,
    topic: TopicInfo,
    only: int | None,
    media_type: str,
    body: bytes | bytearray,
    count_max: int,
) -> list[Placed]:
    request = call.request
    trace = request.headers.get("traceparent")
    count, named_count = topic.writable_partitions, len(topic.partitions)
    if media_type == media_types.OCTET_STREAM:
        record = _raw_record(request, bytes(body))
        if trace is not None:
            record = json_records.with_trace(record, trace)
        return [json_records.placed_raw(record, partition_count=count, only=only)]
    records = json_records.decode_records(body, media_type, count_max)
    return json_records.place_records(
        records, partition_count=count, only=only, trace=trace, named_count=named_count
    )


def _shared_part(placed: Sequence[Placed], bytes_max: int, now_ms: int) -> Part | None:
    """The records as a part of a shared batch, if they are few and have one target."""
    first = placed[0].partition
    records = [item.record for item in placed if item.partition == first]
    if len(records) < len(placed):
        return None
    size_bytes = HEADER_BYTES + sum(map(json_records.size_of, records))
    part = Part(records, size_bytes=size_bytes, bytes_max=bytes_max, now_ms=now_ms)
    return part if part.may_share else None


async def _append_with_others(
    call: Call, topic: TopicInfo, placed: Sequence[Placed], part: Part
) -> web.Response:
    """One request in a batch shared with others that arrive at the same time."""
    partition = placed[0].partition
    partitions = range(topic.writable_partitions) if partition is None else (partition,)
    try:
        receipt = await call.batcher.append(topic.name, partitions, part)
    finally:
        call.target = part.target
    assert part.target is not None
    number = part.target.partition
    created_ms = [record.timestamp_ms for record in part.records]
    return produced(call, created_ms, {number: range(len(placed))}, {number: receipt}, part.now_ms)


async def _append_all(
    call: Call,
    topic: TopicInfo,
    batches: Mapping[int, Sequence[bytes]],
    append: Callable[[TopicPartition, Sequence[bytes]], Awaitable[AppendReceipt]],
) -> dict[int, AppendReceipt | RaftlogError]:
    """One outcome for each partition. An error of a single partition is the error of the request."""
    if len(batches) == 1:
        ((partition, only),) = batches.items()
        call.target = TopicPartition(topic.name, partition)
        return {partition: await append(call.target, only)}
    outcomes = await asyncio.gather(
        *(append(TopicPartition(topic.name, partition), some) for partition, some in batches.items()),
        return_exceptions=True,
    )
    found: dict[int, AppendReceipt | RaftlogError] = {}
    for partition, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, RaftlogError):
            raise outcome
        if isinstance(outcome, RaftlogError):
            outcome = by_newest_metadata(topic, outcome)
        found[partition] = outcome
    return found


def _transaction_of(producer: Producer, body: bytes | bytearray) -> str | None:
    """Of batches, which have its producer in their headers; the leader compares them with one another."""
    first = parse_header(body) if len(body) >= HEADER_BYTES else None
    if first is not None and (first.producer_id, first.producer_epoch) != producer[:2]:
        raise InvalidRequest(
            f"{headers.TRANSACTION} is of producer {producer.producer_id}, epoch {producer.epoch}, and the "
            f"batch of {first.producer_id}, epoch {first.producer_epoch}; send those of the transaction",
            field=headers.TRANSACTION,
        )
    return producer.transactional_id


def _acks_and_timeout(call: Call) -> tuple[Acks, int]:
    limits = call.services.limits
    if not call.query:
        return QUORUM, limits.produce_timeout_ms_default
    timeout_ms = call.capped_ms("timeout", limits.produce_timeout_ms_max, limits.produce_timeout_ms_default)
    return parameters.acks(call.query), timeout_ms


def _raw_record(request: Request, body: bytes) -> Record:
    prefix = headers.HEADER_PREFIX.lower()
    named: dict[str, str] = {}
    for header, text in request.headers.items():
        name = header.lower()
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            if not name or name in named:
                raise InvalidRecord(
                    f"the header {header[:64]!r} has no name or is sent twice", errors=["/headers"]
                )
            named[name] = text
    tags = [tag.strip() for tag in request.headers.get(headers.TAGS, "").split(",") if tag.strip()]
    return json_records.raw_record(body, request.headers.get(headers.KEY), tags, named)


def _refuse_unknown_meaning(request: Request) -> None:
    for name in NOT_YET:
        if name in request.headers:
            raise InvalidRequest(
                f"{name} is not supported by this release; leave it out",
                field=name,
            )


_PARAMETERS = (
    Parameter(
        "acks",
        "when to acknowledge: `0` at once, `1` when the leader has fsynced, `quorum` (also `all`, `-1`; the "
        "default) when committed, `every` when every in-sync replica has fsynced it, a number K when K "
        "replicas have fsynced it",
        {
            "type": "string",
            "pattern": "^([Aa][Ll][Ll]|-1|[Qq][Uu][Oo][Rr][Uu][Mm]|[Ee][Vv][Ee][Rr][Yy]|[0-9]{1,3})$",
            "default": "quorum",
        },
    ),
    duration(
        "timeout",
        "how long to wait for that, such as `5s`, after which the outcome is unknown (504)",
        lambda limits: limits.produce_timeout_ms_default,
    ),
)
_DELAYS = (
    Parameter(
        "delay",
        "hold the records back for this time, such as `30m`, up to the retention of the topic; the response "
        "has their `delayed_id`",
    ),
    Parameter("deliver_at", "hold them back until this time, RFC 3339 or milliseconds since 1970"),
)
_RAW_HEADERS = (
    Parameter(headers.KEY, "key of a raw body", place="header"),
    Parameter(headers.TAGS, "tags of a raw body, separated by commas", place="header"),
    Parameter(f"{headers.HEADER_PREFIX}*", "record headers of a raw body", place="header"),
)
_PRODUCER_HEADERS = (
    Parameter(
        headers.PRODUCER_ID,
        "from POST /v1/producers; all three or none",
        parameters.PRODUCER_ID.schema,
        "header",
    ),
    Parameter(headers.PRODUCER_EPOCH, "from POST /v1/producers", parameters.PRODUCER_EPOCH.schema, "header"),
    Parameter(
        headers.PRODUCER_SEQUENCE,
        "sequence of the first record in this partition",
        parameters.PRODUCER_SEQUENCE.schema,
        "header",
    ),
)
_TRANSACTION_HEADER = Parameter(
    headers.TRANSACTION,
    "the `id` of an open transaction; the records become visible with its commit",
    place="header",
)
IDEMPOTENCY_KEY = Parameter(
    headers.IDEMPOTENCY_KEY,
    f"carry out equal requests with this key once: a repetition gets the first answer. At most "
    f"{KEYED_RECORDS_MAX} records; costs a transaction",
    {"type": "string", "pattern": KEY_PATTERN},
    "header",
)
_RECORD_BODIES: dict[str, BodyType] = {
    media_types.JSON: bodies.Produce,
    media_types.NDJSON: TEXT,
    media_types.OCTET_STREAM: BINARY,
}
_ERRORS = (
    errors.InvalidRequest,
    errors.InvalidRecord,
    errors.RecordTooLarge,
    errors.UnsupportedMediaType,
    errors.UnknownTopic,
    errors.PartitionDecommissioned,
    errors.NoLeader,
    errors.NotEnoughReplicas,
    errors.Overloaded,
    errors.QuotaExceeded,
    errors.Draining,
    errors.StorageFull,
    errors.CommitUnknown,
    errors.ProducerFenced,
    errors.UnknownTransaction,
    errors.TransactionAborted,
    errors.TransactionEnding,
    errors.IdempotencyKeyReused,
    errors.IdempotencyInProgress,
)
_ANSWERS = {
    200: json_answer(
        "all records are stored as `durability` says",
        bodies.Produced,
        headers.LEADER,
        headers.IDEMPOTENCY_REPLAYED,
    ),
    202: json_answer("acks=0: accepted, without an outcome", bodies.Accepted),
}

ROUTES = (
    Route(
        "POST",
        paths.PARTITION_RECORDS,
        produce_to_partition,
        "Produce to one partition",
        "Atomic: all records are stored contiguously, or none. A body of binary batches answers "
        "`BatchesProduced`, every other body `Produced`.",
        (
            TOPIC,
            PARTITION,
            *_PARAMETERS,
            *_DELAYS,
            ROUTE,
            *_RAW_HEADERS,
            *_PRODUCER_HEADERS,
            _TRANSACTION_HEADER,
            IDEMPOTENCY_KEY,
        ),
        {**_RECORD_BODIES, media_types.BATCH: BINARY},
        {
            **_ANSWERS,
            200: Answer(
                "the records are stored as `durability` says",
                {media_types.JSON: (bodies.Produced, bodies.BatchesProduced)},
                (headers.LEADER, headers.IDEMPOTENCY_REPLAYED),
            ),
            307: Answer("route=redirect: ask the leader named in Location", {}, ("Location",)),
        },
        (
            *_ERRORS,
            errors.CorruptBatch,
            errors.UnknownPartition,
            errors.NotLeader,
            errors.OutOfOrderSequence,
        ),
    ),
    Route(
        "POST",
        paths.TOPIC_RECORDS,
        produce_to_topic,
        "Produce records",
        "The partition of a record is murmur2 of its key, as in Kafka's clients; records without a key go "
        "to one random partition; `partition` in a record overrides both.",
        (TOPIC, *_PARAMETERS, *_DELAYS, *_RAW_HEADERS, _TRANSACTION_HEADER, IDEMPOTENCY_KEY),
        _RECORD_BODIES,
        {
            **_ANSWERS,
            207: json_answer(
                "some partitions failed: a receipt or a problem for each record", bodies.Produced
            ),
        },
        _ERRORS,
    ),
)
