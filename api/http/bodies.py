"""Reads the body of a request. The body is counted and limited before it is stored.

Decides: the limits on size, speed and encoding of a body. Leaves to others: JSON (``json_bodies``).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Protocol, TypeVar

import aiohttp
from aiohttp import web

from api.http.json_bodies import WHOLE_BYTES_MAX, check_values, decode_json
from api.http.parameters import media_type_of
from api.http.requests import Request, client_of
from api.http.routes import Call
from api.http.whole_body import WholeBody
from broker.listeners.admission import Hold
from broker.ports import Limits
from raftlog.errors import (
    InvalidRequest,
    MalformedRequest,
    RecordTooLarge,
    RequestTimeout,
    UnsupportedMediaType,
)
from raftlog.exhaustion import refuse_exhausted
from raftlog.node.computing import computed
from raftlog.wire import media_types

CONTENT_ENCODINGS = ("identity", "gzip", "deflate")  # decoded while the body is read
MEMBERS_MAX = 1_000  # each member costs a copy of the bytes after it in its chunk
ANY_ZLIB_WINDOW = 47  # detects gzip and zlib by their headers
INFLATED_BYTES_MAX = 1 << 20  # decompressed at once, so that a body is not stored twice

T = TypeVar("T")


class _Inflater(Protocol):
    """The interface of zlib's decompressor, whose class has no public name."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


def check_announced(request: Request, limits: Limits) -> None:
    """Refuse a body before reading it, if its announced size is too large."""
    announced = request.content_length
    if announced is not None and announced > limits.body_bytes_max:
        raise _too_large(f"the body has {announced} bytes", limits)


async def read_body(request: Request, held: Hold, limits: Limits) -> bytes | bytearray:
    """Read the whole body. ``held`` grows with the bytes received, regardless of the announced size.

    Raises ``RecordTooLarge``, ``RequestTimeout``, ``Overloaded`` (also for lack of memory),
    ``QuotaExceeded``, and ``ConnectionResetError`` if the client disconnects.
    """
    check_announced(request, limits)
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in CONTENT_ENCODINGS:
        raise UnsupportedMediaType(
            f"Content-Encoding {encoding[:64]!r} is not supported; send {', '.join(CONTENT_ENCODINGS)}",
            supported=list(CONTENT_ENCODINGS),
        )
    content = request.content
    try:
        if encoding == "identity" and isinstance(content, WholeBody):
            if content.missing:
                return await _read_rest(content, held, limits)
            held.grow(content.news())
            return content.whole()
        if encoding == "identity" and request.content_length is not None:
            held.expect(request.content_length)
        return await _read_chunks(request, held, None if encoding == "identity" else _Members(), limits)
    except TimeoutError:
        raise RequestTimeout(
            f"the body arrived too slowly: after {limits.body_grace_s:g} s it must arrive with "
            f"{limits.body_rate_min} bytes a second, and completely within {limits.body_timeout_s:g} s; send "
            "it faster or in smaller parts"
        ) from None
    except (
        web.RequestPayloadError,
        aiohttp.ClientError,
        aiohttp.http_exceptions.HttpProcessingError,
    ) as error:
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client disconnected in the middle of a body") from error
        raise MalformedRequest("the framing of the body does not match its headers", field="body") from error
    except MemoryError as error:
        refuse_exhausted(error, "the body cannot be read")
        raise


async def read_json(call: Call, kind: type[T]) -> T:
    """Read a JSON body as a struct. An absent body is an empty object."""
    if not call.request.can_read_body:
        return decode_json(b"{}", kind)
    media_type = media_type_of(call.request)
    if media_type != media_types.JSON:
        raise unsupported(media_type, (media_types.JSON,))
    with call.admission.bodies.hold(client_of(call.request), 0) as held:
        body = await read_body(call.request, held, call.services.limits)
        if len(body) > WHOLE_BYTES_MAX:
            return await decoded_json(body, kind)
        check_values(body)  # equal to ``decoded_json``, with three calls less for each small request
        return decode_json(body or b"{}", kind)


async def decoded_json(text: bytes | bytearray, kind: type[T], prefix: str = "") -> T:
    """Decode JSON as a struct; more than ``WHOLE_BYTES_MAX`` bytes are decoded on another thread.

    Raises the errors of ``check_values`` and ``decode_json``.
    """
    check_values(text)
    work = partial(decode_json, text, kind, prefix=prefix)
    return await computed(work, is_short=len(text) <= WHOLE_BYTES_MAX)


def unsupported(media_type: str, supported: tuple[str, ...]) -> UnsupportedMediaType:
    """The error for a body whose encoding or media type is not supported."""
    sent = f"Content-Type {media_type[:64]!r} is not supported" if media_type else "Content-Type is missing"
    return UnsupportedMediaType(f"{sent}; send {' or '.join(supported)}", supported=list(supported))


async def _read_rest(body: WholeBody, held: Hold, limits: Limits) -> bytearray:
    """Read the rest of a body of known length. Raises ``TimeoutError`` if the rest arrives too slowly."""
    received_bytes = body.news()
    held.expect(received_bytes + body.missing)
    held.grow(received_bytes)
    began = asyncio.get_running_loop().time()
    while body.missing:
        await body.more(began + _allowed_s(limits, received_bytes))
        news = body.news()
        held.grow(news)
        received_bytes += news
    return body.whole()


async def _read_chunks(
    request: Request, held: Hold, members: _Members | None, limits: Limits
) -> bytes | bytearray:
    """Read a body that arrives in chunks of unknown total length. Raises ``TimeoutError`` if it arrives too
    slowly.
    """
    content = request.content
    body, received_bytes = bytearray(), 0
    began = asyncio.get_running_loop().time()
    while True:
        async with asyncio.timeout_at(began + _allowed_s(limits, received_bytes)):
            chunk = await content.readany()
        if not chunk:
            break
        received_bytes += len(chunk)
        for part in (chunk,) if members is None else members.inflated(chunk):
            if len(body) + len(part) > limits.body_bytes_max:
                raise _too_large(f"the body has more than {limits.body_bytes_max} bytes", limits)
            held.grow(len(part))
            body += part
            if len(part) == INFLATED_BYTES_MAX:
                await asyncio.sleep(0)  # other tasks run between chunks
    if members is not None:
        members.check_end()
    return body


def _allowed_s(limits: Limits, received_bytes: int) -> float:
    """Return the time within which more bytes must have arrived, in seconds after the start of the body."""
    return min(limits.body_timeout_s, limits.body_grace_s + received_bytes / limits.body_rate_min)


class _Members:
    """Decompresses a body that has several members, one after another, as joined gzip files have."""

    def __init__(self) -> None:
        self._inflater: _Inflater = zlib.decompressobj(ANY_ZLIB_WINDOW)
        self._count = 1

    def inflated(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decompressed content of a chunk, in parts of at most ``INFLATED_BYTES_MAX``."""
        try:
            while True:
                if self._inflater.eof:
                    if not chunk:
                        return
                    self._begin()
                part = self._inflater.decompress(chunk, INFLATED_BYTES_MAX)
                chunk = self._inflater.unused_data or self._inflater.unconsumed_tail
                if part:
                    yield part
                elif not chunk:
                    return
        except zlib.error as error:
            raise InvalidRequest(
                f"the body does not match Content-Encoding, or is followed by other bytes: {error}",
                field="body",
            ) from None

    def _begin(self) -> None:
        self._count += 1
        if self._count > MEMBERS_MAX:
            raise InvalidRequest(f"the body has more than {MEMBERS_MAX} compressed members", field="body")
        self._inflater = zlib.decompressobj(ANY_ZLIB_WINDOW)

    def check_end(self) -> None:
        """Raise ``InvalidRequest`` if the body has ended within a member."""
        if not self._inflater.eof:
            raise InvalidRequest("the compressed body is truncated", field="body")


def _too_large(what: str, limits: Limits) -> RecordTooLarge:
    return RecordTooLarge(
        f"{what}, but {limits.body_bytes_max} are allowed; send smaller requests",
        limit_bytes=limits.body_bytes_max,
    )
