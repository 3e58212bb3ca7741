"""Server-sent events: one partition, followed until the reader goes, the topic goes or the broker stops.

Events are ``record`` (its ``id`` is the offset, its data what a JSON fetch shows), ``heartbeat`` while
nothing is written, and ``problem`` with an RFC 9457 body before the stream ends. A reader that comes
back with ``Last-Event-ID`` goes on after that offset: the broker keeps nothing about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import msgspec
from aiohttp import web

from api.errors import problem
from api.hang_ups import has_client
from api.json_answers import Page, View
from api.reading import read_at_once
from api.routes import Call
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.types import Offset
from raftlog.wire import media_types

HEADERS = {
    "Content-Type": media_types.EVENT_STREAM,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy that collects events defeats them
}
RECORDS_PER_WRITE = 1_000


async def stream(call: Call, view: View, request: FetchRequest) -> web.StreamResponse:
    """Follow a partition. What is wrong with the request is an ordinary problem, before the stream."""
    if "limit" in call.query:
        raise InvalidRequest("limit is for JSON; an event stream does not end", field="limit")
    with call.admission.parked.hold(call.request.remote or "", 1):
        first = await read_at_once(call, view.target, replace(request, wait_ms=0))
        response = web.StreamResponse(headers=HEADERS)
        call.stamp(response)
        assert isinstance(call.request, web.BaseRequest)
        try:
            await response.prepare(call.request)
            error = await _follow(call, view, request, first, response)
            body = problem(error, instance=call.request.path, request_id=call.request_id)
            await _write(call, response, event("problem", msgspec.json.encode(body)))
        except (ConnectionError, TimeoutError):
            response.force_close()  # nobody reads
    return response


async def _follow(
    call: Call, view: View, request: FetchRequest, result: FetchResult, response: web.StreamResponse
) -> RaftlogError:
    """Returns what ended the partition's side. Raises ``ConnectionError`` once the reader has gone."""
    following = replace(request, wait_ms=call.services.limits.heartbeat_ms)
    try:
        while True:
            next_offset = await _show(call, view, result, response)
            if not result.data:
                await _write(call, response, heartbeat(next_offset, result.high_watermark))
            following = replace(following, position=Offset(next_offset))
            result = await call.hang_ups.park(call.request, read_at_once(call, view.target, following))
    except RaftlogError as error:
        return error


async def _show(call: Call, view: View, result: FetchResult, response: web.StreamResponse) -> int:
    """Write the records of one read, page by page: the next is made when this one has been taken."""
    pages = view.pages(result)
    while True:
        with call.admission.answers.turn(partial(has_client, call.request)) as turn:
            page = await view.next_page(pages, result, turn)
            events, next_offset = b"".join(_events(page)), page.next_offset
            del page  # its reader may take long
        if events:
            await _write(call, response, events)
        if next_offset >= result.next_offset:
            return next_offset


async def _write(call: Call, response: web.StreamResponse, data: bytes) -> None:
    """Raises ``ConnectionError`` once the reader has gone: aiohttp tells that only to the write after it."""
    with call.admission.answers.waiting(
        2 * len(data), partial(_abort, call)
    ):  # aiohttp copies it into a chunk
        async with asyncio.timeout(call.services.limits.write_timeout_s):
            await response.write(data)
    if _transport(call) is None:
        raise ConnectionResetError("the reader of the stream has gone")


def _abort(call: Call) -> None:
    if (transport := _transport(call)) is not None:
        transport.abort()


def _transport(call: Call) -> asyncio.Transport | None:
    assert isinstance(call.request, web.BaseRequest)  # only aiohttp streams
    return call.request.transport


def event(name: str, data: bytes) -> bytes:
    """One event; JSON in one line needs no splitting."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def heartbeat(next_offset: int, high_watermark: int) -> bytes:
    """Tells proxies that the connection lives and the reader that it is up to date."""
    return event("heartbeat", b'{"next_offset":%d,"high_watermark":%d}' % (next_offset, high_watermark))


def _events(page: Page) -> Iterator[bytes]:
    encode = msgspec.json.encode
    for record in page.records:
        yield b"event: record\nid: %d\ndata: %b\n\n" % (record.offset, encode(record))
    for skipped in page.skipped:
        yield event("skipped", encode(skipped))
