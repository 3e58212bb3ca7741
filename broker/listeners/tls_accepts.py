"""The accept loop of a TLS listener: connections count from their acceptance, and handshakes are bounded.

Decides: which connections may begin a handshake, and how long it may take. Leaves to others: the context
(``tls``), and the protocol of a connection after its handshake (``listener``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

from broker.listeners.connection_limit import ANSWERED_AT_ONCE_MAX, ConnectionLimit
from broker.listeners.handing_over import hand_over
from broker.listeners.tls import TlsContext
from broker.listeners.tls_transport import TlsTransport
from raftlog.hosting.budget import share_owner
from raftlog.log_limit import LogLimit

_log = logging.getLogger("raftlog.tls")

HANDSHAKE_S: Final = 5.0
SHUTDOWN_S: Final = 120.0  # for the rest of the last response, and for the client's close_notify after it
HANDSHAKES_MAX: Final = 256
HANDSHAKES_CLIENT_MAX: Final = 32
BACKLOG: Final = 1024
ACCEPTED_AT_ONCE: Final = 64  # per turn of the event loop
PAUSE_S: Final = 1.0  # without descriptors or memory
_LACKS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class HandshakeMetrics(Protocol):
    """The metrics of handshakes."""

    def handshake_ended(self, outcome: str, /) -> None:
        """Count a handshake by its outcome: ``done``, ``failed``, or ``refused`` (it could not begin)."""


class TlsAccepts:
    """The listening sockets of one TLS listener."""

    def __init__(
        self,
        serve: Callable[[], asyncio.BaseProtocol],
        limit: ConnectionLimit,
        tls: TlsContext,
        metrics: HandshakeMetrics,
    ) -> None:
        """``serve`` returns the protocol of a connection after its handshake."""
        self._serve = serve
        self._limit = limit
        self._tls = tls
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._log_limit = LogLimit(self._loop.time)
        self._sockets: list[socket.socket] = []
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._of_client: Counter[str] = Counter()
        self._beyond = 0  # handshakes of connections beyond the limit
        self._pause: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port on which the sockets listen, also if ``start`` got port 0 (any free port)."""
        return int(self._sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen on all addresses of the name ``host``; an empty name means all addresses of the machine.

        Raises ``OSError`` if an address is not available.
        """
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                at = (address[0], self.port) if port == 0 and self._sockets else address[:2]
                with contextlib.suppress(_FamilyMissing):
                    self._sockets.append(_listening(cast("tuple[str, int]", at), family))
            if not self._sockets:
                raise OSError(errno.EAFNOSUPPORT, f"this machine has no address of {host!r}")
        except OSError:
            self.close()
            raise
        self._listen()

    def close(self) -> None:
        """Accept no more connections, and end the handshakes."""
        if self._pause is not None:
            self._pause.cancel()
        while self._sockets:
            listening = self._sockets.pop()
            self._loop.remove_reader(listening)
            listening.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _listen(self) -> None:
        self._pause = None
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _LACKS:
                    raise
                self._rest(error)
                return
            self._accepted(connected, str(address[0]))

    def _rest(self, lack: OSError) -> None:
        """Accept no connection for ``PAUSE_S``: a listening socket stays readable while descriptors lack."""
        if self._log_limit.left_out("lack") is not None:
            _log.warning("no connection is accepted for %s s: %s", PAUSE_S, lack)
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        self._pause = self._loop.call_later(PAUSE_S, self._listen)

    def _accepted(self, connected: socket.socket, client: str) -> None:
        owner = share_owner(client)
        is_beyond = self._limit.is_reached(client)
        if (
            len(self._handshakes) >= HANDSHAKES_MAX
            or self._of_client[owner] >= HANDSHAKES_CLIENT_MAX
            or (is_beyond and self._beyond >= ANSWERED_AT_ONCE_MAX)
        ):
            self._metrics.handshake_ended("refused")
            connected.close()
            return
        connected.setblocking(False)
        self._of_client[owner] += 1
        # A connection beyond the limit takes no place of another; it is refused after its handshake.
        self._beyond += is_beyond
        if not is_beyond:
            self._limit.opened(client)
        uncount = _nothing if is_beyond else partial(self._limit.closed, client)
        new = _Accepted(connected, self._serve, uncount)
        handshake = self._loop.create_task(self._shake_hands(new, connected, client))
        self._handshakes[handshake] = None
        handshake.add_done_callback(partial(self._ended, new, owner, is_beyond))

    def _ended(self, new: _Accepted, owner: str, is_beyond: bool, handshake: asyncio.Task[None]) -> None:
        new.ended()
        del self._handshakes[handshake]
        self._beyond -= is_beyond
        self._of_client[owner] -= 1
        if not self._of_client[owner]:
            del self._of_client[owner]

    async def _shake_hands(self, new: _Accepted, connected: socket.socket, client: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: new,
                connected,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except (OSError, EOFError) as error:  # of ssl, too; a client that leaves, or waits for too long
            self._metrics.handshake_ended("failed")
            left_out = self._log_limit.left_out("failed")
            if left_out is not None:
                _log.info("a TLS handshake of %s failed: %s; %d more since", client, _why(error), left_out)
        else:
            self._metrics.handshake_ended("done")


class _Accepted(asyncio.Protocol):
    """A connection until its handshake has ended; the connection counts in the limit meanwhile."""

    def __init__(
        self, connected: socket.socket, serve: Callable[[], asyncio.BaseProtocol], uncount: Callable[[], None]
    ) -> None:
        self._serve = serve
        self._uncount = uncount
        self._connected: socket.socket | None = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over to the listener's protocol, which counts the connection from now on."""
        self._connected = None
        self._uncount()
        secured = TlsTransport(cast("asyncio.Transport", transport))
        hand_over(cast("asyncio.Transport", secured), self._serve(), b"")

    def ended(self) -> None:
        """Close the connection if its handshake has failed."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None
            self._uncount()


class _FamilyMissing(Exception):
    """The kernel has no addresses of this family, such as IPv6."""


def _listening(address: tuple[str, int], family: int) -> socket.socket:
    try:
        made = socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            raise _FamilyMissing from None
        raise
    made.setblocking(False)
    return made


def _nothing() -> None:
    """Uncount a connection that was not counted."""


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return getattr(error, "reason", None) or str(error)
    return str(error) or type(error).__name__
