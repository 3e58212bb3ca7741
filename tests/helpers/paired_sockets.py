"""TCP of one process for an event loop without real time: each connection is a pair of Unix sockets.

Written bytes can be read at the other end in the next turn of the loop, on any machine under any load: the
kernel hands them over inside the call. Buffers, half-closed connections and resets are those of the kernel
and of asyncio's own transports. Ports belong to one loop, and no address of the machine is used.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import selectors
import socket
from collections.abc import Callable
from typing import Final, Self
from weakref import WeakKeyDictionary

HOST: Final = "127.0.0.1"
PORT_FIRST: Final = 20_000

Factory = Callable[[], asyncio.BaseProtocol]


class _Listener:
    """In place of a listening socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address


class PairedServer:
    """Accepts connections of its loop until it is closed."""

    def __init__(self, loop: PairedSocketsLoop, factory: Factory, port: int) -> None:
        self.factory = factory
        self._loop = loop
        self._port = port

    @property
    def sockets(self) -> tuple[_Listener, ...]:
        """One address, or none after ``close``."""
        return (_Listener((HOST, self._port)),) if self.is_serving() else ()

    def is_serving(self) -> bool:
        """Whether connections are accepted."""
        return self._loop.servers.get(self._port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The only loop that can connect."""
        return self._loop

    def close(self) -> None:
        """Refuse connections; open ones continue."""
        if self.is_serving():
            del self._loop.servers[self._port]

    async def wait_closed(self) -> None:
        """Nothing remains to be done after ``close``."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class PairedSocketsLoop(asyncio.SelectorEventLoop):
    """Overrides the calls of asyncio that listen and connect. ``servers`` are by port."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.servers: dict[int, PairedServer] = {}
        self._ports = itertools.count(PORT_FIRST)
        self._called: WeakKeyDictionary[socket.socket, tuple[str, int]] = WeakKeyDictionary()
        super().__init__(selector)

    async def create_server(  # type: ignore[override]  # its other parameters have no meaning here
        self, protocol_factory: Factory, host: str | None = None, port: int | None = None, **options: object
    ) -> PairedServer:
        """Listen on a port of this loop; on an unused one without ``port``."""
        chosen = port or next(self._ports)
        if chosen in self.servers:
            raise OSError(errno.EADDRINUSE, f"port {chosen} is in use")
        made = self.servers[chosen] = PairedServer(self, protocol_factory, chosen)
        return made

    async def sock_connect(  # type: ignore[override]  # no other address comes here
        self, sock: socket.socket, address: tuple[str, int]
    ) -> None:
        """Remember the address; ``create_connection`` connects. Raises ``ConnectionRefusedError``."""
        self._server_at(address)
        self._called[sock] = address

    async def create_connection(  # type: ignore[override]  # its other parameters have no meaning here
        self,
        protocol_factory: Factory,
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        **options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a server of this loop, or use ``sock``. Raises ``ConnectionRefusedError``."""
        address = (host or HOST, port or 0)
        if sock is not None:
            if sock not in self._called:
                return await super().create_connection(protocol_factory, sock=sock)
            address = self._called.pop(sock)
            sock.close()
        server = self._server_at(address)
        ours, theirs = socket.socketpair()
        self.call_soon(self._connected, theirs, server.factory(), (HOST, next(self._ports)))
        protocol, is_open = protocol_factory(), self.create_future()
        transport = self._connected(ours, protocol, address, is_open)
        try:
            await is_open
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def _server_at(self, address: tuple[str, int]) -> PairedServer:
        server = self.servers.get(address[1])
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        return server

    def _connected(
        self,
        end: socket.socket,
        protocol: asyncio.BaseProtocol,
        peer: tuple[str, int],
        is_open: asyncio.Future[None] | None = None,
    ) -> asyncio.Transport:
        end.setblocking(False)
        made: asyncio.Transport = self._make_socket_transport(  # type: ignore[attr-defined]
            end, protocol, is_open, extra={"peername": peer}
        )
        return made
