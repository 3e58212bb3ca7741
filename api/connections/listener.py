"""The HTTP listener of one broker: its socket, and who reads what comes in.

Decides: the options under which the application is served, and the order in which it stops. Leaves the
number of connections to ``connection_limit``. Every
connection begins with ``fast_path`` and stays there while it brings plain requests; the others are
aiohttp's. Handlers are the same for both.
"""

from __future__ import annotations

import asyncio

from api.app import RequestPipeline
from api.connections.aiohttp_reader import AiohttpServer
from api.connections.connection_limit import ConnectionLimit
from api.connections.fast_path import PlainServer
from api.descriptors import CONNECTIONS_MAX

KEEPALIVE_S = 75.0


class HttpListener:
    """See the module.

    Handlers are not cancelled when a client hangs up: a write that began goes on, and reads that wait
    are ended by ``HangUps``. Bodies are decompressed by ``bodies``, which keeps their limit. A refused
    body is read for a moment more, so that its answer arrives.
    """

    def __init__(
        self,
        pipeline: RequestPipeline,
        *,
        shutdown_timeout_s: float = 10.0,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._pipeline = pipeline
        self._shutdown_timeout_s = shutdown_timeout_s
        self._server: asyncio.Server | None = None
        self._plain: PlainServer | None = None
        self._other: AiohttpServer | None = None
        self._limit = ConnectionLimit(connections_max, self._count, self._serve, pipeline.metrics)

    @property
    def port(self) -> int:
        """Where it listens, which ``start`` has found out if port 0 was asked for."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError`` if it cannot."""
        self._other = AiohttpServer(self._pipeline, KEEPALIVE_S)
        self._plain = PlainServer(
            self._pipeline, self._other.accept, KEEPALIVE_S, self._pipeline.admission.answers
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=1024)

    async def stop(self) -> None:
        """Listen no more, end what waits, finish what is being worked on, within the time."""
        if self._server is not None:
            self._server.close()
        for refused in list(self._limit.refused):
            refused.abort()
        if self._plain is not None and self._other is not None:
            await asyncio.sleep(0)  # what has come begins before what waits is ended
            self._pipeline.close()
            timeout_s = self._shutdown_timeout_s
            await asyncio.gather(self._other.stop(timeout_s), self._plain.stop(timeout_s))

    def _accept(self) -> asyncio.Protocol:
        return self._limit.refuse() or self._serve()

    def _serve(self) -> asyncio.Protocol:
        assert self._plain is not None
        return self._plain.accept()

    def _count(self) -> int:
        plain = 0 if self._plain is None else len(self._plain.connections)
        return plain + (0 if self._other is None else self._other.connection_count)
