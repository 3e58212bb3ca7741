"""All HTTP connections of one broker, behind ``broker.listeners.listener``.

Decides: the options under which the application is served. Every connection begins with ``fast_path`` and
keeps this parser while it sends only plain requests; aiohttp parses all other requests. Both parsers have
equal handlers.
"""

from __future__ import annotations

import asyncio
import math

from api.app import RequestPipeline
from api.connections.aiohttp_reader import AiohttpServer
from api.connections.fast_path import FastPathServer
from broker.listeners.connection_limit import ConnectionLimit

KEEPALIVE_S = 75.0


class HttpConnections:
    """All HTTP connections of one broker.

    Handlers are not cancelled when a client disconnects: a write continues, and ``DisconnectWatcher`` ends
    waiting reads. The module ``bodies`` decompresses bodies, within its limit. The rest of a refused body is
    read for a moment, so that the response arrives.
    """

    def __init__(
        self, request_pipeline: RequestPipeline, limit: ConnectionLimit, *, tls_age_max_s: float = math.inf
    ) -> None:
        """``tls_age_max_s`` is the age at which a connection with TLS closes."""
        self._request_pipeline = request_pipeline
        self._other = AiohttpServer(request_pipeline, KEEPALIVE_S, limit)
        self._plain = FastPathServer(
            request_pipeline,
            self._other.accept,
            KEEPALIVE_S,
            request_pipeline.admission.answers,
            limit,
            tls_age_max_s,
        )

    def accept(self) -> asyncio.BaseProtocol:
        """Create the protocol of a new connection."""
        return self._plain.accept()

    def end_waits(self) -> None:
        """End the waits of requests in progress; later requests do not wait."""
        self._request_pipeline.close()

    async def stop(self, timeout_s: float, /) -> None:
        """Wait up to ``timeout_s`` for the requests in progress, and close all connections."""
        await asyncio.gather(self._other.stop(timeout_s), self._plain.stop(timeout_s))
