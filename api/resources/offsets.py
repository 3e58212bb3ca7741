"""Resolves a time or a named position of a partition to an offset."""

from __future__ import annotations

from aiohttp import web

from api.http import parameters
from api.http.routes import (
    ISOLATION,
    PARTITION,
    TOPIC,
    Call,
    Parameter,
    Route,
    json_answer,
    json_response,
)
from partitions.values import Start
from raftlog import errors
from raftlog.wire import bodies, paths


async def get_offset(call: Call) -> web.StreamResponse:
    """The offset of a time, of the earliest record or of the end."""
    _, target = call.partition()
    position = parameters.position_or_time(call.query.get("at", "latest"), "at")
    committed_only = parameters.committed_only(call.query)
    offset, timestamp_ms = await call.services.gateway.offset_at(
        target, position, committed_only=committed_only
    )
    archived_from = await call.services.archive.archived_from(target) if position is Start.EARLIEST else None
    return json_response(bodies.OffsetBody(offset, timestamp_ms, archived_from))


ROUTES = (
    Route(
        "GET",
        paths.PARTITION_OFFSETS,
        get_offset,
        "Find an offset",
        "`latest` is the end of what can be read: the last stable offset, or the high watermark with "
        "`isolation=uncommitted`. `earliest` is the first offset in the archive, if the log begins above it.",
        (
            TOPIC,
            PARTITION,
            Parameter(
                "at",
                "`earliest`, `latest` (the default), a time in RFC 3339 (the first record at or after it), "
                "a number, or `-100` for the first of the newest 100 records",
                {"type": "string", "default": "latest", "pattern": parameters.POSITION_PATTERN},
            ),
            ISOLATION,
        ),
        {},
        {200: json_answer("the offset, and the timestamp of its record", bodies.OffsetBody)},
        (
            errors.InvalidRequest,
            errors.UnknownTopic,
            errors.UnknownPartition,
            errors.OffsetOutOfRange,
            errors.ArchiveUnavailable,
            errors.NoLeader,
        ),
    ),
)
