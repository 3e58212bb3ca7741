"""One listening socket for clients, and the connections that it accepts.

Decides: the order in which a listener stops. Leaves to others: what is served (``Connections``), and how many
connections may be open (``connection_limit``).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.listeners.connection_limit import ConnectionLimit


class Connections(Protocol):
    """The connections of one protocol. Each counts itself in the limit, or gives way if it is beyond."""

    def accept(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""

    def end_waits(self) -> None:
        """End the waiting requests; later ones do not wait."""

    async def stop(self, timeout_s: float, /) -> None:
        """Complete the requests in progress, within the time, and close all connections."""


class Listener:
    """One listener of one broker."""

    def __init__(
        self, connections: Connections, limit: ConnectionLimit, *, shutdown_timeout_s: float
    ) -> None:
        self._connections = connections
        self._limit = limit
        self._shutdown_timeout_s = shutdown_timeout_s
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port, also if port 0 was requested."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError`` if it cannot."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connections.accept, host, port, backlog=1024)

    async def stop(self) -> None:
        """Stop listening, end waiting requests, complete those in progress, within the time."""
        if self._server is not None:
            self._server.close()
        self._limit.close_refused()
        await asyncio.sleep(0)  # received requests start before waiting ones are ended
        self._connections.end_waits()
        await self._connections.stop(self._shutdown_timeout_s)
