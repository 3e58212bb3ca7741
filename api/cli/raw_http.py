"""Sends prebuilt HTTP requests as raw bytes, and parses only the heads of responses.

Measures brokers without the cost of building records and parsing bodies. Leaves to others: the load
(``closed_loop``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from raftlog.client.tls import Tls, load
from raftlog.wire import headers, media_types, records

READ_BYTES = 1 << 20
FETCH_BYTES = 4 << 20
_SHOWN_BYTES = 500  # shown of an error response
# Shared by all connections: received bytes are handled before the next read.
_MEMORY = memoryview(bytearray(READ_BYTES))


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, the head and the body size of a response, and the beginning of its body."""

    status: int
    head: bytes
    body_bytes: int
    beginning: bytes  # bytes of the body that arrived with the head

    def header(self, name: str) -> int:
        """Return the value of the header ``name``, which is a number."""
        found = self.head.lower().split(f"\r\n{name.lower()}:".encode(), 1)[1]
        return int(found.split(b"\r\n", 1)[0])


class HttpConnection(asyncio.BufferedProtocol):
    """One keep-alive connection to a broker, with one request at a time. ``send`` sends the prebuilt
    request.
    """

    def __init__(self, request: bytes = b"") -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._head = b""
        self._answer: Answer | None = None
        self._missing = 0
        self._done: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the connection."""
        # uvloop's transports have the methods without being subclasses.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for all reads: the bytes of bodies are counted and overwritten."""
        return _MEMORY

    def buffer_updated(self, count: int) -> None:
        """Count received bytes; when the response is complete, end the wait of ``ask``."""
        if self._answer is None:
            self._head += _MEMORY[:count]
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, beginning = self._head[: end + 2], self._head[end + 4 :]
            self._head = b""
            answer = Answer(int(head[9:12]), head, 0, b"")
            length = answer.header("Content-Length") if answer.status != 204 else 0
            self._answer = Answer(answer.status, head, length, beginning[:_SHOWN_BYTES])
            self._missing = length - len(beginning)
        else:
            self._missing -= count
        if self._missing == 0:
            answer, self._answer = self._answer, None
            if self._done is not None and not self._done.done():
                self._done.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        """End the wait of ``ask`` with an error."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the broker closed the connection"))

    async def ask(self, request: bytes) -> Answer:
        """Send one request and return its response. Raises ``RuntimeError`` if the status of the response is
        an error.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection is closed")
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await self._done
        if answer.status not in (200, 201, 204):
            raise RuntimeError(f"status {answer.status}: {answer.beginning.decode(errors='replace')}")
        return answer

    async def send(self) -> None:
        """Send the prebuilt request once, and wait for its response."""
        await self.ask(self._request)

    async def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


class HttpReader:
    """A connection that reads one partition in binary batches, with a long poll at the end of the
    partition.
    """

    def __init__(
        self,
        connection: HttpConnection,
        url: str,
        topic: str,
        partition: int,
        *,
        wait: str = "5s",
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._connection = connection
        self._host = urlsplit(url).netloc
        self._path = records.FETCH.at(topic=topic, partition=partition)
        self._wait = wait
        self._fetch_bytes = fetch_bytes
        self._offset = 0

    async def seek_end(self) -> None:
        """Set the position of the reader to the end of the partition: the next read waits for new records."""
        answer = await self._connection.ask(self._request("latest", "0"))
        self._offset = answer.header(headers.NEXT_OFFSET)

    async def seek_start(self) -> None:
        """Set the position of the reader to the oldest record."""
        answer = await self._connection.ask(self._request("latest", "0"))
        self._offset = answer.header(headers.LOG_START_OFFSET)

    async def read(self) -> tuple[int, int]:
        """Wait for the next records; return the number of records and of bytes."""
        answer = await self._connection.ask(self._request(str(self._offset), self._wait))
        following = answer.header(headers.NEXT_OFFSET)
        count, self._offset = following - self._offset, following
        return count, answer.body_bytes

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def _request(self, offset: str, wait: str) -> bytes:
        return (
            f"GET {self._path}?offset={offset}&max_bytes={self._fetch_bytes}&wait={wait}&route=none"
            f" HTTP/1.1\r\n"
            f"Host: {self._host}\r\nAccept: {media_types.BATCH}\r\n\r\n"
        ).encode()


async def connect(url: str, request: bytes = b"") -> HttpConnection:
    """Connect to a broker. The method ``send`` of the connection sends ``request``."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    loop = asyncio.get_running_loop()
    secured = load(Tls.from_env()) if parts.scheme == "https" else None
    port = parts.port or (80 if secured is None else 443)
    made = loop.create_connection(lambda: HttpConnection(request), parts.hostname, port, ssl=secured)
    _, connection = await made
    return connection


def produce_request(url: str, topic: str, partition: int, batch: bytes) -> bytes:
    """Build a produce request with a prebuilt binary batch, for the leader of the partition."""
    return post(
        url,
        f"{records.PRODUCE_TO_PARTITION.at(topic=topic, partition=partition)}?route=none",
        media_types.BATCH,
        batch,
    )


def post(url: str, path: str, media_type: str, body: bytes) -> bytes:
    """Build the bytes of a POST request."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
