"""Reads through the gateway for a request; counts waiting reads, and cancels a read if its client
disconnects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from api.http.requests import client_of
from api.http.routes import Call
from api.resources.json_answers import Page, View, is_shown_fast
from broker.listeners.answers_in_flight import Turn
from broker.ports import GatewayPort
from partitions.replica.selection import LOOKED_AT_BYTES_MAX
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import NotLeader, OffsetOutOfRange
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.types import Offset, TopicPartition


async def read(call: Call, target: TopicPartition, request: FetchRequest) -> FetchResult:
    """Read once. A read that waits is counted, and cancelled when its client disconnects."""
    if not request.wait_ms:
        return await read_at_once(call, target, request)
    with call.admission.parked.hold(client_of(call.request), 1):
        return await call.disconnect_watcher.park(call.request, read_at_once(call, target, request))


async def read_in_turn(
    read_it: Callable[[FetchRequest], Awaitable[FetchResult]], request: FetchRequest, turn: Turn
) -> FetchResult:
    """Read records that are shown as soon as they are read.

    If showing the records has to wait for a place, they are read again after the wait, so that waiting
    requests hold no records.
    """
    result = await read_it(request)
    if turn.must_wait and not is_shown_fast(result):
        del result
        await turn.begin()
        result = await read_it(replace(request, wait_ms=0))
    return result


async def first_page(
    read_it: Callable[[FetchRequest], Awaitable[FetchResult]], view: View, request: FetchRequest, turn: Turn
) -> tuple[FetchResult, Page]:
    """Read until a fetch has a visible record or no records at all; return this fetch and its first page.

    Also returns if tags are wanted and many bytes were read without a visible record.
    """
    ends_at = deadline_in(request.wait_ms)
    looked_at_bytes = 0
    while True:
        result = await read_in_turn(read_it, request, turn)
        page = await view.page(result, turn)
        if page.records or page.skipped or not result.data:
            return result, page
        looked_at_bytes += len(result.data)  # of batches whose tags are not listed
        if view.wanted is not None and looked_at_bytes >= LOOKED_AT_BYTES_MAX:
            return result, page
        left_ms = ms_until(ends_at, at_least=0)
        request = replace(request, position=Offset(page.next_offset), wait_ms=left_ms)


async def read_at_once(
    call: Call, target: TopicPartition, request: FetchRequest, gateway: GatewayPort | None = None
) -> FetchResult:
    """Read records without counting the read as waiting.

    An error gets details that this broker knows: the requested offset, or the leader's address.
    """
    try:
        return await (gateway or call.services.gateway).fetch(target, request)
    except NotLeader as error:
        leader = call.services.gateway.leader_of(target)
        error.with_details(leader=leader, leader_http=call.services.address_of(leader, call.request.scheme))
        raise
    except OffsetOutOfRange as error:
        if isinstance(request.position, int):
            error.with_details(offset=request.position)
        raise
