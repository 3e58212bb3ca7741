"""Streams server-sent events of one partition.

The stream ends when the client disconnects, the topic is deleted or the broker stops. There are three kinds
of events: ``record`` (its ``id`` is the offset, its data has the form of a JSON fetch), ``heartbeat`` while
no records are written, and ``problem`` with an RFC 9457 body before the stream ends. A client that reconnects
with ``Last-Event-ID`` continues after that offset: the broker keeps no state for the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec
from aiohttp import web
from msgspec.structs import replace

from api.http.disconnects import has_client
from api.http.errors import problem
from api.http.recent_events import ShownPage
from api.http.requests import client_of
from api.http.routes import Call
from api.http.streaming import abort, write
from api.resources.json_answers import Page, View, is_shown_fast
from api.resources.reading import read_at_once, read_in_turn
from broker.listeners.answers_in_flight import Turn
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.records.batch import split_batches
from raftlog.types import Offset
from raftlog.wire import media_types

HEADERS = {
    "Content-Type": media_types.EVENT_STREAM,
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy must not buffer events
}
RECORDS_PER_WRITE = 1_000


async def stream(call: Call, view: View, request: FetchRequest) -> web.StreamResponse:
    """Stream the events of a partition. Errors in the request are ordinary problem responses, before the
    stream begins.
    """
    if "limit" in call.query:
        raise InvalidRequest("limit is for JSON; an event stream does not end", field="limit")
    with call.admission.parked.hold(client_of(call.request), 1):
        # A read of one batch finds errors; the stream reads its records again.
        one = replace(request, bytes_max=1, wait_ms=0, tags=(), tags_all=(), tags_none=())
        first = (await read_at_once(call, view.target, one)).offset
        request = replace(request, position=first, wait_ms=0)
        response = web.StreamResponse(headers=HEADERS)
        call.stamp(response)
        assert isinstance(call.request, web.BaseRequest)
        try:
            await response.prepare(call.request)
            if call.request.method == "HEAD":
                return response
            error = await _follow(call, view, request, response)
            body = problem(error, instance=call.request.path, request_id=call.request_id)
            await write(call, response, event("problem", msgspec.json.encode(body)))
        except (ConnectionError, TimeoutError):
            response.force_close()  # close without waiting for the client
    return response


async def _follow(
    call: Call, view: View, request: FetchRequest, response: web.StreamResponse
) -> RaftlogError:
    """Write events until an error ends the stream; return this error.

    Raises ``ConnectionError`` if the client has disconnected.
    """

    async def read(request: FetchRequest) -> FetchResult:
        asked = (view.target, request)
        reading = call.streams.reads.join(asked, partial(read_at_once, call, *asked))
        return await call.disconnect_watcher.park(call.request, reading)

    clock, heartbeat_ms = call.services.clock, call.services.limits.heartbeat_ms
    written_s = clock.monotonic()
    try:
        while True:
            with call.admission.answers.turn(partial(has_client, call.request)) as turn:
                result = await read_in_turn(read, request, turn)
                next_offset, has_events = await _show(call, view, result, response, turn)
            # Batches whose tags are not listed may be skipped completely, for a long time.
            is_silent = not has_events and clock.monotonic() >= written_s + heartbeat_ms / 1000
            if not result.data or is_silent:
                is_past = view.wanted is not None and next_offset > 0
                await write(call, response, heartbeat(next_offset, result.high_watermark, has_id=is_past))
            if has_events or not result.data or is_silent:
                written_s = clock.monotonic()
            del result  # free the memory: the next read may wait long
            request = replace(request, position=Offset(next_offset), wait_ms=heartbeat_ms)
    except RaftlogError as error:
        return error


async def _show(
    call: Call, view: View, result: FetchResult, response: web.StreamResponse, turn: Turn
) -> tuple[int, bool]:
    """Write the records of one read as events, page by page. A page is built when the client has read the
    previous page.

    Returns the next offset, and whether events were written. Records wake all readers of a partition: one
    reader builds each page, for all of them.
    """
    batches = tuple((batch.base_offset, batch.header.crc) for batch in split_batches(result.data))
    pages: Iterator[Page] | None = None
    at, open_bytes, has_events = int(result.offset), 0, False
    while True:
        if open_bytes:
            turn.wait(open_bytes, partial(abort, call))
        # The key has all inputs of the events; a checksum identifies the contents of its batch.
        with call.streams.recent.page((view, at, batches)) as recent:
            if (shown := await recent.found(turn, is_short=is_shown_fast(result))) is None:
                pages = pages or view.pages(replace(result, offset=Offset(at)))
                shown = await _shown(view, pages, result, turn)
                recent.built(shown)
            elif pages is not None:
                pages = None  # another reader is ahead
        turn.end()
        at = shown.next_offset
        open_bytes = 0 if at >= result.next_offset else shown.open_bytes + len(result.data)
        if shown.events:
            has_events = True
            await write(call, response, shown.events, open_bytes)
        if at >= result.next_offset:
            return at, has_events


async def _shown(view: View, pages: Iterator[Page], result: FetchResult, turn: Turn) -> ShownPage:
    """Return the next of ``pages`` as events. The page itself is freed before the client reads the events."""
    page = await view.next_page(pages, result, turn)
    events = await turn.computed(partial(_events, page), is_short=is_shown_fast(result))
    return ShownPage(events, page.next_offset, page.open_bytes)


def event(name: str, data: bytes) -> bytes:
    """Encode one event; its JSON has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def heartbeat(next_offset: int, high_watermark: int, *, has_id: bool = False) -> bytes:
    """Encode a heartbeat, which keeps the connection open through proxies and reports the high watermark.

    With ``has_id``, a client that reconnects continues at ``next_offset``, because records below it were
    skipped.
    """
    data = b'{"next_offset":%d,"high_watermark":%d}' % (next_offset, high_watermark)
    return (b"id: %d\n" % (next_offset - 1) if has_id else b"") + event("heartbeat", data)


def _events(page: Page) -> bytes:
    events, encoder = bytearray(), msgspec.json.Encoder()
    for record in page.records:
        events += b"event: record\nid: %d\ndata: " % record.offset
        encoder.encode_into(record, events, -1)
        events += b"\n\n"
    for skipped in page.skipped:
        events += event("skipped", encoder.encode(skipped))
    return bytes(events)
