"""The open connections of one protocol: idle connections are closed, and all connections end when their
listener stops.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

SWEEP_S: Final = 5.0


class Connection(Protocol):
    """A client's connection, which has at most one request at a time."""

    idle_since: float
    task: asyncio.Task[None] | None  # of the request

    def close_if_idle(self) -> None:
        """Close the connection, unless it has a request in progress or an unsent response."""

    def abort(self) -> None:
        """Close the connection at once, without waiting for a request or response."""


class OpenConnections:
    """The open connections of one protocol, oldest first. Each connection adds and removes itself."""

    def __init__(self, keepalive_s: float) -> None:
        self.is_stopping = False
        self.connections: dict[Connection, None] = {}
        self._keepalive_s = keepalive_s
        self._sweep_handle = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    async def stop(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the requests in progress, and close all connections."""
        self.is_stopping = True
        self._sweep_handle.cancel()
        for connection in list(self.connections):
            connection.close_if_idle()
        if tasks := [connection.task for connection in self.connections if connection.task is not None]:
            await asyncio.wait(tasks, timeout=timeout_s)
        for connection in list(self.connections):
            connection.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_handle = loop.call_later(SWEEP_S, self._sweep)
        limit = loop.time() - self._keepalive_s
        for connection in list(self.connections):
            if connection.idle_since < limit:
                connection.close_if_idle()
