"""Reads through the gateway on behalf of a request: counted while they wait, ended when nobody listens.

Leaves to others: what a request asked for (``fetch``) and how it is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from api.http.answers_in_flight import Turn
from api.http.errors import with_detail
from api.http.routes import Call
from api.resources.json_answers import is_shown_fast
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import OffsetOutOfRange
from raftlog.types import TopicPartition


async def read(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """One read. One that waits counts as parked and ends when its client hangs up."""
    if not request.wait_ms:
        return await read_at_once(call, target, request)
    with call.admission.parked.hold(call.request.remote or "", 1):
        return await call.hang_ups.park(call.request, read_at_once(call, target, request))


async def read_in_turn(
    read_it: Callable[[FetchRequest], Awaitable[FetchResult]], request: FetchRequest, turn: Turn
) -> FetchResult:
    """A read whose records are shown next. Where that would wait, they are read again after the wait.

    So nothing is held by those that wait.
    """
    result = await read_it(request)
    if turn.must_wait and not is_shown_fast(result):
        del result
        await turn.begin()
        result = await read_it(replace(request, wait_ms=0))
    return result


async def read_at_once(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """The same, uncounted. An offset that is out of range is told which one it was."""
    try:
        return await call.services.gateway.fetch(target, request)
    except OffsetOutOfRange as error:
        if isinstance(request.position, int):
            with_detail(error, offset=request.position)
        raise
