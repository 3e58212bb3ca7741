"""One reader of an event stream, on a socket of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from raftlog.testing.waits import LIMIT_S
from tests.helpers.http_server import HttpServer

PATH = "/v1/topics/orders/partitions/0/records"


class Stream:
    """One connection that reads events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seen = b""

    async def until(self, pattern: bytes) -> bytes:
        """Everything up to the first match."""
        async with asyncio.timeout(LIMIT_S):
            while not re.search(pattern, self.seen, re.DOTALL):
                more = await self.reader.read(65536)
                assert more, self.seen
                self.seen += more
        return self.seen

    async def rest(self) -> bytes:
        """Everything until the server ends the stream."""
        async with asyncio.timeout(LIMIT_S):
            return await self.until(rb"\r\n0\r\n\r\n")

    @property
    def ids(self) -> list[int]:
        """The offsets seen. A chunk of HTTP may end within an event."""
        events = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", self.seen)
        return [int(found) for found in re.findall(rb"\nid: (\d+)\n", events)]


@asynccontextmanager
async def stream(server: HttpServer, query: str = "", last_id: str | None = None) -> AsyncIterator[Stream]:
    """Follow the partition until the block ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    last = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
    head = f"GET {PATH}{query} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{last}\r\n"
    writer.write(head.encode())
    try:
        yield Stream(reader, writer)
    finally:
        writer.close()
