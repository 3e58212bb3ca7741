"""The connector of an aiohttp client in a simulated cluster, in place of ``TCPConnector``."""

from __future__ import annotations

import aiohttp
from aiohttp.client import ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.tracing import Trace

from verification.simulator.event_loop import Process
from verification.simulator.scenarios.http.streams import StreamNetwork


class SimulatedConnector(aiohttp.BaseConnector):
    """Connections of one client process. They never expire, because aiohttp would use the real clock for
    that.
    """

    def __init__(self, network: StreamNetwork, process: Process) -> None:
        super().__init__(limit=0, keepalive_timeout=None)
        self._network = network
        self._process = process

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        host = req.url.raw_host or ""
        try:
            async with aiohttp.helpers.ceil_timeout(
                timeout.sock_connect, ceil_threshold=timeout.ceil_threshold
            ):
                _, protocol = await self._network.connect(self._process, host, self._factory)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                raise
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        assert isinstance(protocol, ResponseHandler)
        return protocol
