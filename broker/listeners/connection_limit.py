"""Limits the connections of clients, and closes the connections beyond the limit.

A connection takes a file descriptor, and the logs and peers of a broker need descriptors, too. A connection
beyond the limit is refused with ``overloaded``. A connection beyond the share of its address is refused with
``quota_exceeded``, so that one client cannot keep out all others. If many connections arrive at once, the
oldest of them without a request are closed without a response. Leaves to others: the form of a response, and
which requests are served nevertheless (``api.connections.fast_path``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, cast

from raftlog.errors import Overloaded, QuotaExceeded
from raftlog.hosting.budget import share_owner
from raftlog.log_limit import LogLimit

CLIENT_SHARE: Final = 4  # an address may have this part of all connections
ANSWERED_AT_ONCE_MAX: Final = (
    16  # connections beyond the limit that wait for a request; the reserve has their descriptors
)
ANSWER_S: Final = 1.0  # a connection beyond the limit is closed after this time
RETRY_AFTER_MS: Final = 1000


class ConnectionMetrics(Protocol):
    """Receives the numbers of open and refused connections."""

    def watch_connections(self, count: Callable[[], int], /) -> None:
        """Take the function ``count``, which returns the number of open connections."""

    def connection_refused(self) -> None:
        """Count one refused connection."""


class ConnectionLimit:
    """Counts the open connections by client address, and decides whether another connection is served. The
    addresses of one IPv6 network count as one address.

    Several listeners may share one limit.
    """

    def __init__(self, kind: str, count_max: int, client_max: int | None, metrics: ConnectionMetrics) -> None:
        """``kind`` names the protocol in messages, such as ``HTTP``. ``client_max`` limits the connections of
        one address; the default is a quarter of ``count_max``.
        """
        self.refused: dict[RefusedConnection, None] = {}
        self._kind = kind
        self._count_max = count_max
        self._client_max = client_max or max(1, count_max // CLIENT_SHARE)
        self._count = 0
        self._of_client: Counter[str] = Counter()
        self._metrics = metrics
        self._log = logging.getLogger(f"raftlog.{kind.lower()}")
        self._log_limit = LogLimit(asyncio.get_running_loop().time)
        metrics.watch_connections(lambda: self._count)

    def opened(self, client: str) -> None:
        """Count a connection of this address that is served."""
        self._count += 1
        self._of_client[share_owner(client)] += 1

    def closed(self, client: str) -> None:
        """Undo ``opened`` for a closed connection."""
        self._count -= 1
        owner = share_owner(client)
        self._of_client[owner] -= 1
        if not self._of_client[owner]:
            del self._of_client[owner]

    def is_reached(self, client: str) -> bool:
        """Whether another connection of this address would be refused; see ``refusal``."""
        return self._count >= self._count_max or self._of_client[share_owner(client)] >= self._client_max

    def refusal(self, client: str) -> Overloaded | QuotaExceeded | None:
        """Return the error for another connection of this address; None if the connection may be served."""
        if self._count >= self._count_max:
            self._note_refused("connections_max", self._count_max)
            return Overloaded(
                f"this broker has {self._count_max} {self._kind} connections open, the maximum "
                f"(limits.connections_max); use fewer, use another broker, or retry later",
                retry_after_ms=RETRY_AFTER_MS,
            )
        if self._of_client[share_owner(client)] >= self._client_max:
            self._note_refused("connections_client_max", self._client_max)
            return QuotaExceeded(
                f"this broker has {self._client_max} {self._kind} connections of this address open, the "
                f"maximum (limits.connections_client_max); use fewer, or close some and retry",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return None

    def close_refused(self) -> None:
        """Close the refused connections that are still open."""
        for refused in list(self.refused):
            refused.abort()

    def _note_refused(self, setting: str, count_max: int) -> None:
        self._metrics.connection_refused()
        left_out = self._log_limit.left_out(setting)
        if left_out is not None:
            self._log.warning(
                "refused an %s connection: %d are open (limits.%s); %d more since the last line",
                self._kind,
                count_max,
                setting,
                left_out,
            )


class RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: its first bytes get a response, and it is closed shortly after."""

    def __init__(self, limit: ConnectionLimit, answer: Callable[[asyncio.Transport, bytes], None]) -> None:
        """``answer`` writes the response to the first bytes. It must not close the connection: a close from
        this side could overtake the response. It may pass the connection to another protocol.
        """
        self._limit = limit
        self._answer = answer
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes of a request, for a limited time."""
        self._transport = made = cast("asyncio.Transport", transport)
        self._limit.refused[self] = None
        if len(self._limit.refused) > ANSWERED_AT_ONCE_MAX:
            next((other for other in self._limit.refused if not other.is_answered), self).abort()
            if made.is_closing():
                return
        self._deadline = asyncio.get_running_loop().call_later(ANSWER_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Respond, and leave the close to the client: a close from this side could discard the response."""
        if self.is_answered or self._transport is None:
            return
        self.is_answered = True
        self._answer(self._transport, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the closed connection, so that another refused connection can get a response."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close the connection at once."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._transport.abort()
