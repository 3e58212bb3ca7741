"""A protocol of lines on the listeners of a broker, which know nothing of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from broker.listeners.connection_limit import ConnectionLimit, RefusedConnection
from broker.listeners.handing_over import hand_over
from broker.listeners.open_connections import OpenConnections


class CountedConnections:
    """The metrics of connections."""

    def __init__(self) -> None:
        self.count: Callable[[], int] = lambda: 0
        self.refused = 0

    def watch_connections(self, count: Callable[[], int], /) -> None:
        self.count = count

    def connection_refused(self) -> None:
        self.refused += 1


class LineConnections(OpenConnections):
    """Connections whose lines come back: ``wait`` when waits end, and ``hang`` never."""

    def __init__(self, limit: ConnectionLimit, keepalive_s: float = 75.0) -> None:
        super().__init__(keepalive_s)
        self.limit = limit
        self.waits_end = asyncio.Event()

    def accept(self) -> asyncio.Protocol:
        return LineConnection(self)

    def end_waits(self) -> None:
        self.waits_end.set()


class LineConnection(asyncio.Protocol):
    """One connection."""

    def __init__(self, lines: LineConnections) -> None:
        self.idle_since = 0.0
        self.task: asyncio.Task[None] | None = None
        self._lines = lines
        self._client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._client = transport.get_extra_info("peername")[0]
        if (error := self._lines.limit.refusal(self._client)) is not None:
            refused = RefusedConnection(self._lines.limit, partial(_refuse, error.code))
            hand_over(self._transport, refused, b"")
            return
        self.idle_since = asyncio.get_running_loop().time()
        self._lines.connections[self] = None
        self._lines.limit.opened(self._client)

    def connection_lost(self, exc: Exception | None) -> None:
        del self._lines.connections[self]
        self._lines.limit.closed(self._client)

    def data_received(self, data: bytes) -> None:
        self.task = asyncio.get_running_loop().create_task(self._answer(data))

    async def _answer(self, line: bytes) -> None:
        if line == b"wait\n":
            await self._lines.waits_end.wait()
        elif line == b"hang\n":
            await asyncio.Event().wait()
        self._transport.write(line)
        self.task = None
        self.idle_since = asyncio.get_running_loop().time()
        if self._lines.is_stopping:
            self._transport.close()

    def close_if_idle(self) -> None:
        if self.task is None:
            self._transport.close()

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self._transport.abort()


def _refuse(code: str, transport: asyncio.Transport, data: bytes) -> None:
    transport.write(f"{code}\n".encode())
    transport.write_eof()
