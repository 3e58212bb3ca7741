"""Reads through the gateway on behalf of a request: counted while they wait, ended when nobody listens.

Leaves to others: what a request asked for (``fetch``) and how it is shown.
"""

from __future__ import annotations

from api.errors import with_detail
from api.routes import Call
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import OffsetOutOfRange
from raftlog.types import TopicPartition


async def read(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """One read. One that waits counts as parked and ends when its client hangs up."""
    if not request.wait_ms:
        return await read_at_once(call, target, request)
    with call.admission.parked.hold(call.request.remote or "", 1):
        return await call.hang_ups.park(call.request, read_at_once(call, target, request))


async def read_at_once(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """The same, uncounted. An offset that is out of range is told which one it was."""
    try:
        return await call.services.gateway.fetch(target, request)
    except OffsetOutOfRange as error:
        if isinstance(request.position, int):
            with_detail(error, offset=request.position)
        raise
