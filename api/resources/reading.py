"""Reads through the gateway on behalf of a request: counted while they wait, cancelled when the client
disconnects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from api.http.answers_in_flight import Turn
from api.http.errors import with_detail
from api.http.routes import Call
from api.resources.json_answers import is_shown_fast
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import NotLeader, OffsetOutOfRange
from raftlog.types import TopicPartition


async def read(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """One read. A waiting read counts and is cancelled when its client disconnects."""
    if not request.wait_ms:
        return await read_at_once(call, target, request)
    with call.admission.parked.hold(call.request.remote or "", 1):
        return await call.disconnect_watcher.park(call.request, read_at_once(call, target, request))


async def read_in_turn(
    read_it: Callable[[FetchRequest], Awaitable[FetchResult]], request: FetchRequest, turn: Turn
) -> FetchResult:
    """A read of records that are shown next. If that has to wait, they are read again after the wait, so that
    waiting requests hold no records.
    """
    result = await read_it(request)
    if turn.must_wait and not is_shown_fast(result):
        del result
        await turn.begin()
        result = await read_it(replace(request, wait_ms=0))
    return result


async def read_at_once(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """The same, uncounted. Errors have what only this side knows: the offset, or the leader's address."""
    try:
        return await call.services.gateway.fetch(target, request)
    except NotLeader as error:
        leader = call.services.gateway.leader_of(target)
        with_detail(error, leader=leader, leader_http=call.services.http_address(leader))
        raise
    except OffsetOutOfRange as error:
        if isinstance(request.position, int):
            with_detail(error, offset=request.position)
        raise
