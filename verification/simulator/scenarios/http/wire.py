"""Parses HTTP/1.1 requests and responses from the bytes of a connection.

Decides: where a message begins and ends. Leaves to others: the content of a response (``checker``). The
parser shares no code with client or server, so that it cannot hide an error of these programs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

_HEAD_END: Final = b"\r\n\r\n"
_STREAM: Final = "text/event-stream"


class Malformed(Exception):
    """Raised for bytes that are not HTTP/1.1."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its response, if it was sent. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    began_at: float
    body: bytes = b""
    is_whole: bool = False  # the request has arrived
    arrived_at: float = 0.0
    status: int = 0
    answer_headers: Mapping[str, str] = field(default_factory=dict)
    answer: bytes = b""
    memory: dict[str, int] = field(default_factory=dict)  # data of the checker


class Reader:
    """Parses the messages of one direction. ``on_head`` returns the framing of a body, ``on_body`` gets a
    whole body.
    """

    def __init__(
        self,
        on_head: Callable[[str, Mapping[str, str]], bool],
        on_body: Callable[[bytes], None],
        on_chunk: Callable[[bytes], None],
    ) -> None:
        self._on_head = on_head
        self._on_body = on_body
        self._on_chunk = on_chunk
        self._data = bytearray()
        self._length: int | None = None  # of the body that is being read
        self._is_chunked = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises ``Malformed``."""
        self._data += data
        while self._step():
            pass

    def _step(self) -> bool:
        data = self._data
        if self._is_chunked:
            return self._chunk()
        if self._length is None:
            end = data.find(_HEAD_END)
            if end < 0:
                return False
            lines = data[:end].decode("latin-1").split("\r\n")
            del data[: end + 4]
            self._begin(lines)
            return True
        if len(data) < self._length:
            return False
        body = bytes(data[: self._length])
        del data[: self._length]
        self._length = None
        self._on_body(body)
        return bool(data)

    def _begin(self, lines: list[str]) -> None:
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, separator, text = line.partition(":")
            if not separator:
                raise Malformed(f"{line!r} is not a header")
            if name.lower() in headers and name.lower() in ("content-length", "transfer-encoding"):
                raise Malformed(f"{name} is sent twice")
            headers[name.lower()] = text.strip()
        has_body = self._on_head(lines[0], headers)
        if has_body and headers.get("transfer-encoding", "").lower() == "chunked":
            self._is_chunked = True
        else:
            self._length = int(headers.get("content-length", "0")) if has_body else 0

    def _chunk(self) -> bool:
        data = self._data
        end = data.find(b"\r\n")
        if end < 0:
            return False
        size = int(bytes(data[:end]).split(b";")[0], 16)
        if len(data) < end + 2 + size + 2:
            return False
        chunk = bytes(data[end + 2 : end + 2 + size])
        del data[: end + 2 + size + 2]
        if size:
            self._on_chunk(chunk)
        else:
            self._is_chunked = False
            self._on_body(b"")
        return True


class Wire:
    """A broker's end of one connection. ``answered`` is called with each exchange when its response
    is sent.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        asked: Callable[[Exchange], None],
        answered: Callable[[Exchange], None],
        event: Callable[[Exchange, bytes], None],
        malformed: Callable[[str], None],
    ) -> None:
        self._now = now
        self._asked = asked
        self._answered = answered
        self._event = event
        self._malformed = malformed
        self._open: deque[Exchange] = deque()  # requests without a response
        self._events = b""
        self._requests = Reader(self._request_head, self._request_body, lambda chunk: None)
        self._answers = Reader(self._answer_head, self._answer_body, self._answer_chunk)

    def received(self, data: bytes) -> None:
        """Parse bytes that the broker's program gets; malformed requests are ignored, because clients send
        them on purpose.
        """
        try:
            self._requests.feed(data)
        except (Malformed, ValueError):
            self._open.clear()

    def sent(self, data: bytes) -> None:
        """Parse bytes that the broker's program has written."""
        if data.startswith(b"HTTP/1.1 100 ") and not self._answers._data:
            data = data.partition(_HEAD_END)[2]
        try:
            self._answers.feed(data)
        except (Malformed, ValueError) as error:
            self._malformed(f"an answer is not HTTP: {error}")

    def _request_head(self, first: str, headers: Mapping[str, str]) -> bool:
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        self._open.append(Exchange(method, unquote(path), asked, headers, self._now()))
        return True

    def _request_body(self, body: bytes) -> None:
        if self._open:
            exchange = self._open[-1]
            exchange.body = body
            exchange.is_whole = True
            exchange.arrived_at = self._now()
            self._asked(exchange)

    def _answer_head(self, first: str, headers: Mapping[str, str]) -> bool:
        if not self._open:
            raise Malformed(f"{first!r} answers no request")
        exchange = self._open[0]
        exchange.status = int(first.split(" ")[1])
        exchange.answer_headers = headers
        self._events = b""
        return exchange.status not in (204, 304)

    def _answer_chunk(self, chunk: bytes) -> None:
        exchange = self._open[0]
        if not exchange.answer_headers.get("content-type", "").startswith(_STREAM):
            exchange.answer += chunk
            return
        *events, self._events = (self._events + chunk).split(b"\n\n")
        for event in events:
            self._event(exchange, event)

    def _answer_body(self, body: bytes) -> None:
        exchange = self._open.popleft()
        exchange.answer += body
        self._answered(exchange)
