"""Parses common requests fast; aiohttp parses all others.

Decides: which parser a connection has. A connection begins with this parser and keeps it while the connection
sends plain requests: HTTP/1.1, a path and a query without escapes, a body of a known, small length, no
protocol upgrade and no streamed response. With the first other request, including a head that arrives in
pieces, the connection moves to aiohttp permanently. Leaves to others: which requests are plain
(``plain_requests``), and routes, negotiation, handlers and errors, which both parsers share
(``app.RequestPipeline``).

Health and metrics are also served beyond the limit of connections, so that a monitor does not take the broker
for dead.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, cast

from aiohttp import web

from api.connections.batch_sender import BatchSender
from api.connections.plain_requests import Head, PlainRequest, head_of, read_head, write_answer
from api.http.batch_answers import BatchesAnswer
from api.http.errors import problem_response
from api.http.requests import RememberedRequest
from api.http.whole_body import WholeBody
from broker.listeners.answers_in_flight import AnswersInFlight
from broker.listeners.connection_limit import ConnectionLimit, RefusedConnection
from broker.listeners.handing_over import hand_over
from broker.listeners.open_connections import OpenConnections
from raftlog.errors import RaftlogError
from raftlog.wire import health

HEAD_BYTES_MAX: Final = 8 << 10
LINGER_S: Final = 0.5  # time for which the rest of a refused body is read, so that the response arrives
SCRATCH_BYTES: Final = 256 << 10
_PATHS: Final = ("/healthz/", f"{health.METRICS.path} ")
SERVED: Final = tuple(f"{method} {path}".encode() for method in ("GET", "HEAD") for path in _PATHS)


class Application(Protocol):
    """The handler of all requests; in production ``app.RequestPipeline``."""

    def answer_plain(self, request: RememberedRequest, /) -> Awaitable[web.StreamResponse]:
        """Return the response to a request."""

    def is_streamed(self, method: str, path: str, headers: Mapping[str, str], /) -> bool:
        """True if the response is sent while it is generated."""


class FastPathServer(OpenConnections):
    """Serves the connections that have sent only plain requests so far."""

    def __init__(
        self,
        application: Application,
        fallback: Callable[[float], asyncio.BaseProtocol],
        keepalive_s: float,
        answers: AnswersInFlight,
        limit: ConnectionLimit,
        tls_age_max_s: float = math.inf,
    ) -> None:
        """``fallback`` creates the protocol of a connection that the fast path does not handle; its argument
        is the time of the loop at which the connection must close. ``tls_age_max_s`` is the age at which a
        connection with TLS closes.
        """
        super().__init__(keepalive_s)
        self.tls_age_max_s = tls_age_max_s
        self.application = application
        self.answers = answers
        self.limit = limit
        self.fallback = fallback
        # All connections are read into it (except bodies), because its bytes are consumed before the next
        # read.
        self.scratch = bytearray(SCRATCH_BYTES)

    def accept(self, *, is_exempt: bool = False) -> asyncio.BufferedProtocol:
        """Create the protocol of a new connection. ``is_exempt`` means that the connection is served beyond
        the limit.
        """
        return FastPathConnection(self, is_exempt=is_exempt)

    def refuse(self, error: RaftlogError, transport: asyncio.Transport, data: bytes) -> None:
        """Write the response to the first bytes of a connection beyond the limit, and ignore later bytes."""
        if data.startswith(SERVED):
            hand_over(transport, self.accept(is_exempt=True), data)
            return
        write_answer(transport, problem_response(error, instance="/", request_id=""), is_last=True)
        if transport.can_write_eof():
            transport.write_eof()


class FastPathConnection(asyncio.BufferedProtocol):
    """One connection of a client, which handles one request after the other."""

    def __init__(self, server: FastPathServer, *, is_exempt: bool) -> None:
        self._is_exempt = is_exempt
        self.transport: asyncio.Transport | None = None
        self.remote: str | None = None
        self.scheme = "http"
        self._closes_at = math.inf
        self.task: asyncio.Task[None] | None = None
        self.idle_since = 0.0
        self._server = server
        self._request: PlainRequest | None = None  # parsed, and not answered yet
        self._ahead = b""  # bytes received after the current request
        self._linger: asyncio.TimerHandle | None = (
            None  # set while the rest of an answered request's body is read
        )
        self._is_last = False
        self._written: web.Response | None = None  # set only during the write
        self._is_full = False  # the client does not read its responses
        self._head: Head | None = None  # head of the previous request
        self._sender: BatchSender | None = None  # sends a response whose batches are read while it is sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        # uvloop's transports have the methods without being subclasses.
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(
            0
        )  # so that ``pause_writing`` is called whenever a part of a response is left
        address = transport.get_extra_info("peername")
        self.remote = str(address[0]) if address else None
        now = asyncio.get_running_loop().time()
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
            self._closes_at = now + self._server.tls_age_max_s
        if not self._is_exempt and (error := self._server.limit.refusal(self.remote or "")) is not None:
            refused = RefusedConnection(self._server.limit, partial(self._server.refuse, error))
            hand_over(self.transport, refused, b"")
            return
        if (connected := transport.get_extra_info("socket")) is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # to detect dead clients
        self.idle_since = now
        self._server.connections[self] = None
        self._server.limit.opened(self.remote or "")

    def _leave_server(self) -> None:
        if self._server.connections.pop(self, self) is None:
            self._server.limit.closed(self.remote or "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake a handler that waits for the body; handlers that do not wait continue."""
        self.transport = None
        self._leave_server()
        self._server.answers.taken(self)
        if self._sender is not None:
            self._sender.stop()
        if self._linger is not None:
            self._linger.cancel()
        if self._request is not None and self._request.content.missing:
            self._request.content.fail(
                ConnectionResetError("the client disconnected in the middle of a body")
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next received bytes: the buffer of an incomplete body, otherwise the
        shared buffer.
        """
        request = self._request
        room = request.content.room() if request is not None and request.content.missing else None
        if room is None:
            return memoryview(self._server.scratch)
        return room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes: a request, the rest of a body, or a request that arrived before the previous
        response.
        """
        request = self._request
        if request is None and not self._is_full:
            self._begin(self._server.scratch, nbytes)
        elif request is not None and request.content.missing:
            self._body_arrived(request.content, nbytes)
        else:
            self._ahead += self._server.scratch[:nbytes]
            if self.transport is not None:
                self.transport.pause_reading()

    def _body_arrived(self, body: WholeBody, nbytes: int) -> None:
        beyond = nbytes - body.missing  # a body that no handler wants may be followed by more bytes
        body.arrived(min(nbytes, body.missing))
        if beyond > 0:
            self._ahead += self._server.scratch[nbytes - beyond : nbytes]
        if self.transport is None:
            return
        if body.is_ahead or beyond > 0:
            self.transport.pause_reading()
        if self._linger is not None and not body.missing:
            self._linger.cancel()
            self._linger = None
            self._go_on(self.transport)

    def _resume_body(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Stop serving requests, because the client reads its responses too slowly."""
        self._is_full = True
        if self.transport is not None:
            # The whole response stays in memory, even after the kernel has taken its beginning.
            whole_bytes = 0 if self._written is None else self._written.content_length or 0
            held_bytes = max(whole_bytes, self.transport.get_write_buffer_size())
            self._server.answers.wait(self, held_bytes, self.abort)

    def resume_writing(self) -> None:
        """Continue with the bytes that were received while serving was stopped."""
        self._is_full = False
        self._server.answers.taken(self)
        if self._request is None and self._ahead and self.transport is not None:
            self._read_ahead(self.transport)

    def close_if_idle(self) -> None:
        """Close the connection, unless it has a request in progress or an unsent response."""
        if (
            self._request is None
            and self.transport is not None
            and not self.transport.get_write_buffer_size()
        ):
            self.transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.task is not None:
            self.task.cancel()
        if self.transport is not None:
            self.transport.abort()

    def _begin(self, data: bytes | bytearray, count: int) -> None:
        """Serve the request in the first ``count`` bytes, or pass the connection to aiohttp."""
        request = self._request = self._read(data, count)
        if request is None:
            self._hand_over(bytes(memoryview(data)[:count]))
            return
        self.task = asyncio.get_running_loop().create_task(self._serve(request))

    def _read(self, data: bytes | bytearray, count: int) -> PlainRequest | None:
        """Return the request at the beginning of ``data``; None if the request is not plain."""
        end = data.find(b"\r\n\r\n", 0, min(count, HEAD_BYTES_MAX)) + 4
        if end < 4:
            return None
        view = memoryview(data)
        text = bytes(view[:end])
        head = self._head
        if head is None or head.text != text:  # cache: clients repeat their heads
            head = self._head = self._read_head(text)
            if head is None:
                return None
        body_end = min(end + head.length, count)
        self._ahead = bytes(view[body_end:count])
        return PlainRequest(self, head, WholeBody(view[end:body_end], head.length, self._resume_body))

    def _read_head(self, text: bytes) -> Head | None:
        head = read_head(text)
        if head is None or self._server.application.is_streamed(head.method, head.path, head.headers):
            return None
        return head

    def _hand_over(self, data: bytes) -> None:
        """Pass the connection, with the bytes that it has received, to aiohttp."""
        transport = self.transport
        assert transport is not None
        self._leave_server()
        hand_over(transport, self._server.fallback(self._closes_at), data)

    async def _serve(self, request: PlainRequest) -> None:
        try:
            response = await self._server.application.answer_plain(request)
            if isinstance(response, BatchesAnswer):
                await self._send_batches(request, response)
            else:
                self._answer(request, response)
        except BaseException:
            if self.transport is not None:
                self.transport.abort()
            raise

    def _answer(self, request: PlainRequest, response: web.StreamResponse) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        assert isinstance(response, web.Response)
        self._is_last = response.keep_alive is False or self._is_ending
        self._written = response
        write_answer(transport, response, is_last=self._is_last)
        self._written = None
        self._answered(request, transport)

    async def _send_batches(self, request: PlainRequest, answer: BatchesAnswer) -> None:
        """Send a response whose batches are read while it is sent.

        If the response cannot be completed, the connection closes.
        """
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self._is_last = self._is_ending
        head = head_of(answer, answer.size_bytes, is_last=self._is_last)
        self._sender = BatchSender(transport, head, answer, self._server.answers)
        is_whole = await self._sender.send()
        self._sender = None
        if not is_whole:
            transport.abort()
        elif self.transport is not None:
            self._answered(request, transport)

    @property
    def _is_ending(self) -> bool:
        """Whether the connection closes after its response: the listener stops, or the connection was too old
        before its request.
        """
        return self._server.is_stopping or self.idle_since >= self._closes_at

    def _answered(self, request: PlainRequest, transport: asyncio.Transport) -> None:
        if request.content.missing:
            request.content.drop()
            transport.resume_reading()
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, transport.close)
        else:
            self._go_on(transport)

    def _go_on(self, transport: asyncio.Transport) -> None:
        """Complete the request: wait for the next request, or start it if it has arrived already."""
        loop = asyncio.get_running_loop()
        self._request = self.task = None
        self.idle_since = loop.time()
        if self._is_last:
            transport.close()
        elif self._ahead and not self._is_full:
            self._read_ahead(transport)

    def _read_ahead(self, transport: asyncio.Transport) -> None:
        data, self._ahead = self._ahead, b""
        transport.resume_reading()
        self._begin(data, len(data))
