"""Handles produces: records as JSON, NDJSON, raw bodies and binary batches, to a topic or to one partition.

A request to one partition is atomic and has one status. A request to several partitions returns 200 only if
all appends succeeded, otherwise 207 with a receipt or a problem for each record. A complete request is stored
even if the client disconnects: an append is never cancelled.
"""

from __future__ import annotations

from aiohttp import web

from api.http import parameters
from api.http.idempotency import KEY_PATTERN
from api.http.redirects import redirect_to_leader
from api.http.routes import (
    PARTITION,
    ROUTE,
    TOPIC,
    Call,
    Parameter,
    Route,
    duration,
)
from api.resources.produce_batches import produce_batches
from api.resources.produce_records import by_newest_metadata, produce_records
from raftlog import errors
from raftlog.wire import headers, media_types, records
from raftlog.wire.limits import KEYED_RECORDS_MAX


async def produce_to_partition(call: Call) -> web.StreamResponse:
    """Append records or batches to one partition."""
    topic, target = call.partition()
    if "route" in call.query and (other := redirect_to_leader(call, target)) is not None:
        return other
    if parameters.media_type_of(call.request) == media_types.BATCH:
        return await produce_batches(call, target)
    return await produce_records(call, topic, target.partition)


async def produce_to_topic(call: Call) -> web.StreamResponse:
    """Append records to a topic; their keys determine their partitions."""
    topic = call.topic()
    if parameters.media_type_of(call.request) == media_types.BATCH:
        path = records.PRODUCE_TO_PARTITION.path.replace("{topic}", topic.name)
        raise errors.UnsupportedMediaType(
            f"a binary batch belongs to one partition: POST it to {path}",
            supported=[media_types.JSON, media_types.NDJSON, media_types.OCTET_STREAM],
        )
    try:
        return await produce_records(call, topic, None)
    except errors.PartitionDecommissioned as refused:
        raise by_newest_metadata(topic, refused) from refused


_PARAMETERS = (
    Parameter(
        "acks",
        "when to acknowledge: `0` at once, `1` when the leader has fsynced, `quorum` (also `all`, `-1`; the "
        "default) when committed, `every` when every in-sync replica has fsynced, a number K when K "
        "replicas have fsynced",
        {
            "type": "string",
            "pattern": "^([Aa][Ll][Ll]|-1|[Qq][Uu][Oo][Rr][Uu][Mm]|[Ee][Vv][Ee][Rr][Yy]|[0-9]{1,3})$",
            "default": "quorum",
        },
    ),
    duration(
        "timeout",
        "longest wait for the acknowledgement, such as `5s`; then the outcome is unknown (504)",
        lambda limits: limits.produce_timeout_ms_default,
    ),
)
_DELAYS = (
    Parameter(
        "delay",
        "hold the records back for this time, such as `30m`, up to the retention of the topic; the response "
        "has their `delayed_id`",
    ),
    Parameter("deliver_at", "hold the records back until this time, RFC 3339 or milliseconds since 1970"),
)
_RAW_HEADERS = (
    Parameter(headers.KEY, "key of a raw body", place="header"),
    Parameter(headers.TAGS, "tags of a raw body, separated by commas", place="header"),
    Parameter(f"{headers.HEADER_PREFIX}*", "record headers of a raw body", place="header"),
)
_PRODUCER_HEADERS = (
    Parameter(
        headers.PRODUCER_ID,
        "from POST /v1/producers; send all three headers or none",
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
    f"carry out equal requests with this key once: a repetition gets the first response. At most "
    f"{KEYED_RECORDS_MAX} records; each such request runs a transaction",
    {"type": "string", "pattern": KEY_PATTERN},
    "header",
)

ROUTES = (
    Route(
        records.PRODUCE_TO_PARTITION,
        produce_to_partition,
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
    ),
    Route(
        records.PRODUCE,
        produce_to_topic,
        (TOPIC, *_PARAMETERS, *_DELAYS, *_RAW_HEADERS, _TRANSACTION_HEADER, IDEMPOTENCY_KEY),
    ),
)
