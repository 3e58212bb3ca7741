"""HTTP between aiohttp's clients and servers without sockets, for virtual time.

Bytes arrive a millisecond later, complete and in order; nothing is lost and no buffer is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVarTuple, cast

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from api.connections.handing_over import deliver

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace


DELAY_S: Final = 0.001
_APART_S: Final = 1e-9  # timers of one moment fire in no order

Arguments = TypeVarTuple("Arguments")


class MemoryHttp:
    """The servers by host name."""

    def __init__(self) -> None:
        self.servers: dict[str, web.Server] = {}

    def connector(self) -> aiohttp.BaseConnector:
        """The connector of a client in this network."""
        return _Connector(self)

    async def serve(self, runner: web.AppRunner, host: str) -> str:
        """Accept connections for a host until the runner is cleaned up. Returns its URL."""
        site = _Site(runner, self, host)
        await site.start()
        return site.name


class _Site(web.BaseSite):
    def __init__(self, runner: web.AppRunner, network: MemoryHttp, host: str) -> None:
        super().__init__(runner)
        self._network = network
        self._host = host

    @property
    def name(self) -> str:
        return f"http://{self._host}"

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        self._network.servers[self._host] = self._runner.server

    async def stop(self) -> None:
        self._network.servers.pop(self._host, None)
        await super().stop()


class _Connector(aiohttp.BaseConnector):
    def __init__(self, network: MemoryHttp) -> None:
        super().__init__(limit=0, keepalive_timeout=None)  # aiohttp uses the real clock for that
        self._network = network

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        server = self._network.servers.get(req.url.raw_host or "")
        if server is None:
            raise aiohttp.ClientConnectorError(req.connection_key, ConnectionRefusedError(111, "refused"))
        client: ResponseHandler = self._factory()
        ends = _End(client), _End(server())
        for end, peer in (ends, ends[::-1]):
            end.peer = peer
            end.protocol.connection_made(end)
        return client


class _End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = cast("asyncio.Protocol", protocol)
        self.peer = self
        self._is_closing = False
        self._is_lost = False
        self._loop = asyncio.get_running_loop()
        self._arrives_at = 0.0  # what left last

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it."""
        if data and not self._is_closing:
            self._send(self.peer._receive, bytes(data))

    def writelines(self, list_of_data: object) -> None:
        """All of them as one."""
        self.write(b"".join(cast("list[bytes]", list_of_data)))

    def close(self) -> None:
        """Close both directions, after the written bytes."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)
            self._send(self.peer._lose)

    def abort(self) -> None:
        """The same: no bytes are ever unsent."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever unsent."""

    def get_write_buffer_size(self) -> int:
        """Nothing is ever unsent."""
        return 0

    def is_reading(self) -> bool:
        """Whether bytes may come."""
        return not self._is_closing

    def pause_reading(self) -> None:
        """Bodies are small here: bytes are delivered anyway."""

    def resume_reading(self) -> None:
        """No effect, like ``pause_reading``."""

    def _send(self, what: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        self._arrives_at = max(self._arrives_at + _APART_S, self._loop.time() + DELAY_S)
        self._loop.call_at(self._arrives_at, what, *arguments)

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            deliver(lambda: self.protocol, data)

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_closing = self._is_lost = True
            self.protocol.connection_lost(None)
