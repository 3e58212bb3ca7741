"""The HTTP listener of one broker: its socket, and the parsers of its connections.

Decides: the options with which the application is served, and the order in which it stops. Leaves the number
of connections to ``connection_limit``. Each connection begins with ``fast_path`` and stays there while it
sends plain requests; aiohttp parses the others. Both use the same handlers.
"""

from __future__ import annotations

import asyncio

from api.app import RequestPipeline
from api.connections.aiohttp_reader import AiohttpServer
from api.connections.connection_limit import ConnectionLimit
from api.connections.fast_path import FastPathServer
from broker.process.descriptors import CONNECTIONS_MAX

KEEPALIVE_S = 75.0
CLIENT_SHARE = 4  # one address may have 1/CLIENT_SHARE of all connections


class HttpListener:
    """The HTTP listener of one broker.

    Handlers are not cancelled when a client disconnects: writes continue, and ``DisconnectWatcher`` ends
    waiting reads. ``bodies`` decompresses bodies within its limit. The rest of a refused body is read for a
    short time, so that the response arrives.
    """

    def __init__(
        self,
        request_pipeline: RequestPipeline,
        *,
        shutdown_timeout_s: float = 10.0,
        connections_max: int = CONNECTIONS_MAX,
        connections_client_max: int | None = None,
    ) -> None:
        """``connections_client_max`` is the share of one address, by default a quarter."""
        self.request_pipeline = request_pipeline
        self._shutdown_timeout_s = shutdown_timeout_s
        self._server: asyncio.Server | None = None
        self._plain: FastPathServer | None = None
        self._other: AiohttpServer | None = None
        self._limit = ConnectionLimit(
            connections_max,
            connections_client_max or max(1, connections_max // CLIENT_SHARE),
            request_pipeline.metrics,
        )

    @property
    def port(self) -> int:
        """The port, also if port 0 was requested."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Start to listen. Raises ``OSError`` if the address cannot be used."""
        self._other = AiohttpServer(self.request_pipeline, KEEPALIVE_S, self._limit)
        self._plain = FastPathServer(
            self.request_pipeline,
            self._other.accept,
            KEEPALIVE_S,
            self.request_pipeline.admission.answers,
            self._limit,
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._plain.accept, host, port, backlog=1024)

    async def stop(self) -> None:
        """Stop listening, end waiting requests, and complete the requests in progress within the timeout."""
        if self._server is not None:
            self._server.close()
        for refused in list(self._limit.refused):
            refused.abort()
        if self._plain is not None and self._other is not None:
            await asyncio.sleep(0)  # received requests start before waiting requests are ended
            self.request_pipeline.close()
            timeout_s = self._shutdown_timeout_s
            await asyncio.gather(self._other.stop(timeout_s), self._plain.stop(timeout_s))
