"""Reads connections with aiohttp, and responds to bytes that are not HTTP.

Neither the response nor the log quotes bytes that are not HTTP: they may contain secrets. Leaves valid
requests to ``app.RequestPipeline``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from typing import Final

from aiohttp import StreamReader, http_exceptions, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage

from api.app import RequestPipeline
from api.connections.fast_path import LINGER_S
from broker.listeners.connection_limit import ConnectionLimit
from raftlog.errors import HeadersTooLarge, InternalError, MalformedRequest, RaftlogError, UriTooLong
from raftlog.log_limit import LogLimit

TARGET_BYTES_MAX: Final = 8192
HEADER_BYTES_MAX: Final = 8190  # aiohttp's errors differ only by their limits
HEADERS_MAX: Final = 128
PIECE_BYTES: Final = 16 << 10
NO_METHOD: Final = "UNKNOWN"  # aiohttp's value for unreadable requests

LINGER_OLD_S: Final = 60.0  # of a response that is in progress when its connection is too old
_LOG = logging.getLogger("raftlog.api")
_REFUSED = (http_exceptions.HttpProcessingError, web.RequestPayloadError)


class AiohttpServer:
    """Serves the connections that have sent a request which the fast path does not handle."""

    def __init__(self, request_pipeline: RequestPipeline, keepalive_s: float, limit: ConnectionLimit) -> None:
        self._limit = limit
        self._request_pipeline = request_pipeline
        self._keepalive_s = keepalive_s
        self._server = web.Server(request_pipeline.answer, request_factory=_request)
        self._log_limit = LogLimit(asyncio.get_running_loop().time)

    def accept(self, closes_at: float = math.inf) -> asyncio.Protocol:
        """Create the protocol of a connection that must close at this time of the loop."""
        made = _Connection(
            self._request_pipeline, self._log_limit, self._server, self._keepalive_s, self._limit
        )
        made.close_at(closes_at)
        return made

    async def stop(self, timeout_s: float) -> None:
        """Complete the requests in progress within ``timeout_s``, and close all connections."""
        self._server.pre_shutdown()
        await self._server.shutdown(timeout_s)


class _Connection(web.RequestHandler):
    def __init__(
        self,
        request_pipeline: RequestPipeline,
        log_limit: LogLimit,
        server: web.Server,
        keepalive_s: float,
        limit: ConnectionLimit,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # no access log, as with AppRunner
            auto_decompress=False,
            keepalive_timeout=keepalive_s,
            lingering_time=LINGER_S,
            max_line_size=TARGET_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
        )
        self._request_pipeline = request_pipeline
        self._log_limit = log_limit
        self._is_refused = False
        self._is_lost = asyncio.Event()
        self._limit = limit
        self._client = ""
        self._age_limit: asyncio.TimerHandle | None = None

    def close_at(self, time_s: float) -> None:
        """Close the connection at a time of the loop, after the response in progress; ``LINGER_OLD_S`` later
        also during a response, such as a stream of events.
        """
        if time_s < math.inf:
            self._age_limit = asyncio.get_running_loop().call_at(time_s, self._grow_old)

    def _grow_old(self) -> None:
        if self._waiter is not None:  # it waits for a request
            self.force_close()
        else:
            self.close()  # after the response
            self._age_limit = asyncio.get_running_loop().call_later(LINGER_OLD_S, self._abort)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection for the address of its client."""
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self._client = str(address[0]) if address else ""
        self._limit.opened(self._client)

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to aiohttp; bytes after an invalid request are ignored.

        The bytes are passed in pieces, because aiohttp's error has several copies of the bytes that aiohttp
        got.
        """
        for at in range(
            0, len(data) or 1, PIECE_BYTES
        ):  # an empty piece lets aiohttp read the bytes that it kept
            if self._messages and not isinstance(self._messages[-1][0], RawRequestMessage):
                self._is_refused = True
            if self._is_refused:
                return
            super().data_received(data[at : at + PIECE_BYTES])

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the waits for this client, which has disconnected."""
        self._is_lost.set()
        if self._age_limit is not None:
            self._age_limit.cancel()
        self._limit.closed(self._client)
        super().connection_lost(exc)

    async def _drain_helper(self) -> None:
        """Remove the traceback of aiohttp's error: one of its frames refers to the error, which forms a cycle
        that includes the response.
        """
        try:
            await super()._drain_helper()
        except ConnectionError as error:
            raise error.with_traceback(None) from None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write the response. After a refusal the client may still send, and closing at once could discard
        the response, so the connection stays open for a moment.
        """
        body = resp.body if isinstance(resp, web.Response) else None
        size_bytes = (
            len(body) if isinstance(body, bytes | bytearray | memoryview) else 0
        )  # aiohttp copies the body
        with self._request_pipeline.admission.answers.waiting(2 * size_bytes, self._abort):
            finished = await super().finish_response(request, resp, start_time)
        transport = self.transport
        if self._is_refused and transport is not None and transport.can_write_eof():
            transport.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._is_lost.wait()
        return finished

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return a problem document, in place of aiohttp's text."""
        if request.writer.output_size > 0:
            raise ConnectionError("a response has begun already, so the error cannot be sent")
        if isinstance(exc, http_exceptions.HttpProcessingError):
            self._is_refused = True
            exc.__traceback__ = None  # its frames hold received bytes, and form a cycle with the error
            error = refusal_of(exc)
            self._tell(str(error))
            return self._request_pipeline.refuse(request, error)
        self.log_exception("a connection's reader failed", exc_info=exc)
        return self._request_pipeline.refuse(request, InternalError("internal error; see the broker's log"))

    def log_exception(self, *args: object, **kw: object) -> None:
        """Log an error, except an invalid end of a body after the response to its request: the broker did not
        cause this error.
        """
        error = kw.get("exc_info")
        if isinstance(error, _REFUSED):
            self._tell("the unread rest of a body")
        else:
            _LOG.error(*args, exc_info=error if isinstance(error, BaseException) else True)

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _tell(self, why: str) -> None:
        left_out = self._log_limit.left_out("not HTTP")
        if left_out is not None:
            remote = self.transport.get_extra_info("peername") if self.transport else None
            _LOG.warning(
                "refused bytes that are not HTTP: %s, from %s; %d more since the last line",
                why,
                remote,
                left_out,
            )


def refusal_of(error: http_exceptions.HttpProcessingError) -> RaftlogError:
    """Return the problem for an error of aiohttp's parser."""
    if isinstance(error, http_exceptions.LineTooLong):
        if error.args[1] == TARGET_BYTES_MAX:
            return UriTooLong(
                f"path and query have more than {TARGET_BYTES_MAX} bytes", limit_bytes=TARGET_BYTES_MAX
            )
        return HeadersTooLarge(
            f"a header has more than {HEADER_BYTES_MAX} bytes", limit_bytes=HEADER_BYTES_MAX
        )
    if error.message.startswith("Too many headers"):
        return HeadersTooLarge(f"there are more than {HEADERS_MAX} headers")
    return MalformedRequest(_what_is_wrong(error))


def _what_is_wrong(error: http_exceptions.HttpProcessingError) -> str:
    match error:
        case http_exceptions.BadHttpMethod() if "HTTPS" in error.message:
            return "this looks like TLS, but this port has no TLS; use http://"
        case http_exceptions.BadHttpMethod():
            return "the request does not begin with an HTTP method"
        case http_exceptions.InvalidURLError():
            return "the target of the request is neither a path nor a URL"
        case http_exceptions.BadStatusLine():
            return "the first line is not METHOD, path and HTTP/1.1, separated by single blanks"
        case http_exceptions.PayloadEncodingError():
            return "the body does not agree with Transfer-Encoding or Content-Length"
        case _ if error.message.startswith("Missing 'Host'"):
            return "the header Host is missing, which HTTP/1.1 requires"
        case _ if error.message.startswith("Duplicate '"):
            return "a header that must be unique, such as Host or Content-Length, is sent twice"
        case _:
            return "a header, or the framing of the body, is not valid HTTP/1.1"


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """Create a request whose response is in HTTP/1.1, or in HTTP/1.0 if the request is in HTTP/1.0."""
    if message.version != HttpVersion10 or message.method == NO_METHOD:
        message = message._replace(version=HttpVersion11)
    return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())
