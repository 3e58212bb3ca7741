"""One listening socket for clients, and the connections that the socket accepts.

Decides: the order in which a listener stops. Leaves to others: the protocol that is served (``Connections``),
and how many connections may be open (``connection_limit``).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.tls import TlsContext
from broker.listeners.tls_accepts import HandshakeMetrics, TlsAccepts


class Connections(Protocol):
    """The connections of one protocol. Each new connection counts itself in the limit, or refuses itself if
    the limit is reached.
    """

    def accept(self) -> asyncio.BaseProtocol:
        """Create the protocol of a new connection."""

    def end_waits(self) -> None:
        """End the waits of requests in progress; later requests do not wait."""

    async def stop(self, timeout_s: float, /) -> None:
        """Wait up to ``timeout_s`` for the requests in progress, and close all connections."""


class Listener:
    """The listener of one protocol, with its connections: a plain port, a TLS port, or both."""

    def __init__(
        self, connections: Connections, limit: ConnectionLimit, *, shutdown_timeout_s: float
    ) -> None:
        self._connections = connections
        self._limit = limit
        self._shutdown_timeout_s = shutdown_timeout_s
        self._server: asyncio.Server | None = None
        self._tls: TlsAccepts | None = None

    @property
    def port(self) -> int:
        """The plain port, also if ``start`` got port 0 (any free port)."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def tls_port(self) -> int:
        """The TLS port, also if ``start_tls`` got port 0 (any free port)."""
        assert self._tls is not None
        return self._tls.port

    async def start(self, host: str, port: int) -> None:
        """Start to accept connections without TLS. Raises ``OSError`` if the address is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connections.accept, host, port, backlog=1024)

    async def start_tls(self, host: str, port: int, tls: TlsContext, metrics: HandshakeMetrics) -> None:
        """Start to accept connections with TLS. Raises ``OSError`` if the address is not available."""
        accepts = TlsAccepts(self._connections.accept, self._limit, tls, metrics)
        await accepts.start(host, port)
        self._tls = accepts

    async def stop(self) -> None:
        """Stop listening, end the waits of requests, and close all connections when their requests are
        complete or the time is over.
        """
        for each in (self._server, self._tls):
            if each is not None:
                each.close()
        self._limit.close_refused()
        await asyncio.sleep(0)  # received requests start before waiting ones are ended
        self._connections.end_waits()
        await self._connections.stop(self._shutdown_timeout_s)
