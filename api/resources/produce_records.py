"""Handles produces of records as JSON, NDJSON or a raw body, to a topic or to one partition.

A small request shares its batch with other requests that arrive at the same time. A larger request has its
own batches for each partition. Requests with an idempotency key and requests with delays are handled
separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from api.http.batching import Part
from api.http.bodies import check_announced, read_body, unsupported
from api.http.idempotency import refuse_key
from api.http.json_bodies import WHOLE_BYTES_MAX
from api.http.producers import Producer
from api.http.requests import Request, client_of
from api.http.routes import Call, json_response
from api.resources import delays, json_records
from api.resources.json_records import Placed
from api.resources.one_shot import claimed, first_answer_or, produce_once
from api.resources.produce_terms import record_terms
from api.resources.receipts import produced, receipts_of
from partitions.metadata.image import TopicInfo
from partitions.values import QUORUM, AcksKind, AppendReceipt
from raftlog import errors
from raftlog.errors import InvalidRecord, InvalidRequest, RaftlogError
from raftlog.node.computing import computed
from raftlog.records.batch import HEADER_BYTES
from raftlog.records.builder import Record
from raftlog.records.failures import MESSAGE_BYTES_MAX
from raftlog.types import TopicPartition
from raftlog.wire import bodies, headers, media_types
from raftlog.wire import records as record_operations
from raftlog.wire.limits import KEYED_RECORDS_MAX

RETRY_AFTER_MS: Final = 200


async def produce_records(call: Call, topic: TopicInfo, only: int | None) -> web.Response:
    """Append the records in the body; to partition ``only`` if it is given."""
    request, services = call.request, call.services
    media_type, key, producer, acks, timeout_ms, call.capped, is_delayed = call.from_head(record_terms)
    if producer is not None and producer.is_sequenced and only is None:
        raise _needs_partition(topic)
    if acks != QUORUM:
        refuse_key(request, f"needs acks=quorum, not acks={acks}: omit acks or the key")
    with call.admission.bodies.hold(client_of(request), 0) as held:
        if media_type not in media_types.PRODUCE:
            check_announced(request, services.limits)
            raise unsupported(media_type, media_types.PRODUCE)
        body = await read_body(request, held, services.limits)
        is_short = len(body) <= WHOLE_BYTES_MAX
        scope = f"{request.path} {topic.topic_id}"  # a topic that is created again has other keys
        claim = None if key is None else await claimed(call, key, body, scope=scope)
        placed, place = None, partial(_records_of, call, only, media_type, body, records_max(call, key))
        while placed is None:
            try:
                placed = await computed(partial(place, topic), is_short=is_short)
            except InvalidRequest as error:
                newer = await _with_added_partitions(call, topic, error) if only is None else None
                if newer is None:
                    return await first_answer_or(call, error, claim)
                topic = newer
        if is_delayed or any(item.due for item in placed):
            return await delays.produce(call, topic, placed, acks=acks, timeout_ms=timeout_ms)
        now_ms = services.clock.wall_ms()
        part = None
        is_usual = acks == QUORUM and timeout_ms == services.limits.produce_timeout_ms_default
        if producer is None and claim is None and is_usual:
            part = _shared_part(placed, services.batch_bytes_max(topic), now_ms)
        if part is not None:
            return await _append_with_others(call, topic, placed, part)
        del body, place
        groups = json_records.spread(placed, topic.writable_partitions, services.rng)
        is_sequenced = producer is not None and producer.is_sequenced  # the leader recognises stored records
        bytes_max = MESSAGE_BYTES_MAX if is_sequenced else services.batch_bytes_max(topic)
        build = partial(_batches_of, placed, groups, bytes_max, now_ms=now_ms, producer=producer)
        try:
            batches = await computed(build, is_short=is_short)
        except errors.RecordTooLarge as error:
            return await first_answer_or(call, error, claim)
        created_ms = [item.record.timestamp_ms for item in placed]
        del placed, build  # from here on the batches account for the size of the body
        if claim is not None:
            describe = partial(receipts_of, call, created_ms, groups, now_ms=now_ms)
            return await produce_once(call, topic.name, batches, describe, claim=claim, timeout_ms=timeout_ms)
        append = partial(
            services.gateway.append,
            acks=acks,
            timeout_ms=timeout_ms,
            transactional_id=None if producer is None else producer.transactional_id,
            client=client_of(call.request),
        )
        outcomes = await _append_all(call, topic, batches, append)
    if acks.kind is AcksKind.NONE:
        return json_response(bodies.Accepted(len(created_ms)), 202)
    return produced(call, created_ms, groups, outcomes, now_ms)


def _needs_partition(topic: TopicInfo) -> InvalidRequest:
    return InvalidRequest(
        f"{headers.PRODUCER_SEQUENCE} needs a partition: sequences are counted per partition; POST to "
        f"{record_operations.PRODUCE_TO_PARTITION.path.replace('{topic}', topic.name)}",
        field=headers.PRODUCER_SEQUENCE,
    )


async def _with_added_partitions(call: Call, topic: TopicInfo, error: InvalidRequest) -> TopicInfo | None:
    """Return newer metadata of the topic if they have partitions that this broker did not know and that
    records may name; otherwise None.
    """
    topics = call.services.topics
    await topics.hear_of((topic.name, number) for number in json_records.unknown_partitions(error))
    newer = topics.topic_here(topic.name, topic.topic_id)
    return newer if newer is not None and len(newer.partitions) > len(topic.partitions) else None


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
    """Return the maximum number of records in one request. With an idempotency key it is lower, because the
    response is kept.
    """
    count_max = call.services.limits.records_per_request_max
    return count_max if key is None else min(count_max, KEYED_RECORDS_MAX)


def _records_of(
    call: Call,
    only: int | None,
    media_type: str,
    body: bytes | bytearray,
    count_max: int,
    topic: TopicInfo,
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
    """Return the records as a part of a shared batch if they are few and have one target; otherwise None."""
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
    """Append the records of one request in a batch shared with other requests."""
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
    """Append batches to all partitions; return one outcome for each partition. If there is only one
    partition, its error is raised.
    """
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


def by_newest_metadata(topic: TopicInfo, error: RaftlogError) -> RaftlogError:
    """Return the error to report for a produce: ``NoLeader`` if this broker chose a decommissioned partition
    because its metadata is old.

    Returns other errors unchanged.
    """
    if not isinstance(error, errors.PartitionDecommissioned):
        return error
    partition = error.details.get("partition")
    if not isinstance(partition, int) or partition >= topic.writable_partitions:
        return error
    return errors.NoLeader(
        f"{topic.name}/{partition} is decommissioned, but the metadata of this broker is older; retry",
        retry_after_ms=RETRY_AFTER_MS,
    )


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
