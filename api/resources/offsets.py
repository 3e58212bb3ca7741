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
    json_response,
)
from partitions.values import Start
from raftlog.wire import bodies, partitions


async def get_offset(call: Call) -> web.StreamResponse:
    """Return the offset of a time, of the earliest record, or of the end of a partition."""
    _, target = call.partition()
    position = parameters.position_or_time(call.query.get("at", "latest"), "at")
    committed_only = parameters.committed_only(call.query)
    offset, timestamp_ms = await call.services.gateway.offset_at(
        target, position, committed_only=committed_only
    )
    archived_from = await call.services.archive.archived_from(target) if position is Start.EARLIEST else None
    return json_response(bodies.FoundOffset(offset, timestamp_ms, archived_from))


ROUTES = (
    Route(
        partitions.OFFSET_AT,
        get_offset,
        (
            TOPIC,
            PARTITION,
            Parameter(
                "at",
                "`earliest`, `latest` (the default), a time in RFC 3339 (the first record at or after "
                "this time), a number, or `-100` for the first of the newest 100 records",
                {"type": "string", "default": "latest", "pattern": parameters.POSITION_PATTERN},
            ),
            ISOLATION,
        ),
    ),
)
