"""Parses plain requests from bytes and writes their responses; see ``fast_path``.

The parser is strict: two parsers that disagree about a request enable request smuggling.
"""

from __future__ import annotations

import asyncio
import re
import time
from email.utils import formatdate
from typing import Final, NamedTuple, Protocol

from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE
from multidict import CIMultiDict, CIMultiDictProxy, MultiDict, MultiDictProxy

from api.http.requests import Found
from api.http.whole_body import WholeBody

BODY_BYTES_MAX: Final = 4 << 20  # aiohttp reads larger bodies
HEADERS_MAX: Final = 64
JOINED_BYTES_MAX: Final = 64 << 10  # a smaller body is joined with its head

_FIRST = re.compile(
    r"(GET|POST|PUT|PATCH|DELETE) (/[A-Za-z0-9._~:/-]*)(?:\?([A-Za-z0-9._~:,=&/-]*))? HTTP/1\.1\r\n"
)
_HEADER = re.compile(r"^([A-Za-z0-9-]+):([\t -~]*)\r\n", re.MULTILINE)
_PAIRS = re.compile(r"[^=&]+=[^=&]*(?:&[^=&]+=[^=&]*)*")
_NOT_PLAIN = ("Transfer-Encoding", "Expect", "Upgrade", "TE", "Trailer")


class Client(Protocol):
    """The sender of a plain request."""

    @property
    def remote(self) -> str | None:
        """The address of the client."""

    @property
    def scheme(self) -> str:
        """The scheme of the client's connection."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection of the client; None when the connection is closed."""


class Head(NamedTuple):
    """The head of a plain request: its bytes and its fields.

    ``found`` has values that handlers have computed from the head.
    """

    text: bytes
    method: str
    path: str
    query_string: str
    headers: CIMultiDictProxy[str]
    length: int
    found: Found


class PlainRequest:
    """A plain request; implements ``Request``."""

    __slots__ = (
        "_client",
        "content",
        "content_length",
        "found",
        "headers",
        "method",
        "path",
        "query_string",
        "remote",
    )

    def __init__(self, client: Client, head: Head, content: WholeBody) -> None:
        self._client = client
        self.remote = client.remote
        self.method = head.method
        self.path = head.path
        self.query_string = head.query_string
        self.headers = head.headers
        self.found = head.found
        self.content_length = head.length if "Content-Length" in head.headers else None
        self.content = content

    @property
    def path_qs(self) -> str:
        """The path with its query."""
        return f"{self.path}?{self.query_string}" if self.query_string else self.path

    @property
    def query(self) -> MultiDictProxy[str]:
        """The query parameters. The query of a plain request has no escapes."""
        pairs = (pair.partition("=") for pair in self.query_string.split("&"))
        return MultiDictProxy(MultiDict([(name, text) for name, _, text in pairs]))

    @property
    def scheme(self) -> str:
        """``https`` for a connection with TLS, else ``http``."""
        return self._client.scheme

    @property
    def can_read_body(self) -> bool:
        """True if the request has a body."""
        return bool(self.content_length)

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection of the client; None when the connection is closed."""
        return self._client.transport


class _Date:
    """The value of the header ``Date``, formatted once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = ""

    def text(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


_DATE = _Date()


def read_head(text: bytes) -> Head | None:
    """Parse the head in these bytes; None if the request is not plain."""
    lines = text[:-2].decode("latin-1")
    first = _FIRST.match(lines)
    if first is None:
        return None
    method, path, query_string = first.groups("")
    headers = _headers_of(lines[first.end() :])
    if headers is None or "//" in path or "/." in path:
        return None
    if query_string and _PAIRS.fullmatch(query_string) is None:
        return None
    length = _length_of(headers)
    if length is None:
        return None
    return Head(text, method, path, query_string, headers, length, {})


def _headers_of(text: str) -> CIMultiDictProxy[str] | None:
    """Parse the headers, one per line; None if a header does not belong in a plain request."""
    pairs = _HEADER.findall(text)
    if len(pairs) != text.count("\n") or len(pairs) > HEADERS_MAX:
        return None
    if len({name.lower() for name, _ in pairs}) != len(pairs):
        return None  # aiohttp decides which headers may be repeated
    headers = CIMultiDict([(name, value.strip(" \t")) for name, value in pairs])
    if any(name in headers for name in _NOT_PLAIN) or "Host" not in headers:
        return None
    if headers.get("Connection", "keep-alive").lower() != "keep-alive":
        return None
    return CIMultiDictProxy(headers)


def _length_of(headers: CIMultiDictProxy[str]) -> int | None:
    """Return the length of the body in bytes; None if the request is not plain because of its body."""
    text = headers.get("Content-Length", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        return None
    return int(text) if int(text) <= BODY_BYTES_MAX else None


def write_answer(transport: asyncio.Transport, response: web.Response, *, is_last: bool) -> None:
    """Write a response to the connection. ``is_last`` means that the connection closes after it."""
    body = response.body or b""
    assert isinstance(body, bytes | bytearray | memoryview)
    head = head_of(response, len(body), is_last=is_last)
    if len(body) > JOINED_BYTES_MAX:
        transport.writelines((head, body))
    else:
        transport.write(b"".join((head, body)))


def head_of(response: web.Response, size_bytes: int, *, is_last: bool) -> bytes:
    """Return the status line and the headers of a response with a body of ``size_bytes``."""
    status = response.status
    lines = [f"HTTP/1.1 {status} {response.reason}", *map(": ".join, response.headers.items())]
    if status != 204:
        lines.append(f"Content-Length: {size_bytes}")
    lines += [f"Date: {_DATE.text()}", f"Server: {SERVER_SOFTWARE}"]
    if is_last:
        lines.append("Connection: close")
    head = "\r\n".join(lines) + "\r\n\r\n"
    if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
        raise ValueError("a header of the response contains a line break")
    return head.encode()
