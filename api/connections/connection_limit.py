"""Limits the HTTP connections, and answers connections beyond the limit.

A connection takes a file descriptor, and the logs and peers of a broker need descriptors, too. A connection
beyond the limit gets ``overloaded`` and is closed; a connection beyond the share of its address gets
``quota_exceeded``, so that one client cannot keep out all others. If many arrive at once, the oldest
connections without a request are closed without a response. Health and metrics are always served, so that a
monitor does not consider the broker dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from api.connections.handing_over import hand_over
from api.connections.plain_requests import write_answer
from api.http.errors import problem_response
from api.resources.metrics import HttpMetrics
from raftlog.errors import Overloaded, QuotaExceeded, RaftlogError
from raftlog.hosting.budget import share_owner
from raftlog.log_limit import LogLimit
from raftlog.wire import health

_log = logging.getLogger("raftlog.http")

ANSWERED_AT_ONCE_MAX: Final = (
    16  # connections beyond the limit that wait for a request; the reserve has their descriptors
)
ANSWER_S: Final = 1.0  # a connection beyond the limit is closed after this time
RETRY_AFTER_MS: Final = 1000
_PATHS: Final = ("/healthz/", f"{health.METRICS.path} ")
SERVED: Final = tuple(f"{method} {path}".encode() for method in ("GET", "HEAD") for path in _PATHS)


class ConnectionLimit:
    """Counts the open connections by the owner of their address, and decides whether more are served."""

    def __init__(self, count_max: int, client_max: int, metrics: HttpMetrics) -> None:
        self.refused: dict[RefusedConnection, None] = {}
        self._count_max = count_max
        self._client_max = client_max
        self._count = 0
        self._of_client: Counter[str] = Counter()
        self._metrics = metrics
        self._log_limit = LogLimit(asyncio.get_running_loop().time)
        metrics.watch_connections(lambda: self._count)

    def opened(self, client: str) -> None:
        """Count a served connection of this address."""
        self._count += 1
        self._of_client[share_owner(client)] += 1

    def closed(self, client: str) -> None:
        """Undo ``opened`` for a closed connection."""
        self._count -= 1
        owner = share_owner(client)
        self._of_client[owner] -= 1
        if not self._of_client[owner]:
            del self._of_client[owner]

    def refusal(self, client: str) -> Overloaded | QuotaExceeded | None:
        """Return why another connection of this address is not served; None if it is served."""
        if self._count >= self._count_max:
            self._note_refused("connections_max", self._count_max)
            return Overloaded(
                f"this broker has {self._count_max} HTTP connections open, the maximum "
                f"(limits.connections_max); use fewer, use another broker, or retry later",
                retry_after_ms=RETRY_AFTER_MS,
            )
        if self._of_client[share_owner(client)] >= self._client_max:
            self._note_refused("connections_client_max", self._client_max)
            return QuotaExceeded(
                f"this broker has {self._client_max} HTTP connections of this address open, the maximum "
                f"(limits.connections_client_max); use fewer, or close some and retry",
                retry_after_ms=RETRY_AFTER_MS,
            )
        return None

    def _note_refused(self, setting: str, count_max: int) -> None:
        self._metrics.connection_refused()
        left_out = self._log_limit.left_out(setting)
        if left_out is not None:
            _log.warning(
                "refused an HTTP connection: %d are open (limits.%s); %d more since the last line",
                count_max,
                setting,
                left_out,
            )


class RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: it gets a response to its first bytes, and is closed shortly after."""

    def __init__(
        self, limit: ConnectionLimit, error: RaftlogError, serve: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        """``serve`` returns the protocol of a connection that asks for health or metrics."""
        self._limit = limit
        self._error = error
        self._serve = serve
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, for a limited time."""
        self._transport = made = cast("asyncio.Transport", transport)
        self._limit.refused[self] = None
        if len(self._limit.refused) > ANSWERED_AT_ONCE_MAX:
            next((other for other in self._limit.refused if not other.is_answered), self).abort()
            if made.is_closing():
                return
        self._deadline = asyncio.get_running_loop().call_later(ANSWER_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Respond, and let the client close: closing from this side could discard the response."""
        if self.is_answered or self._transport is None:
            return
        self.is_answered = True
        if data.startswith(SERVED):
            hand_over(self._transport, self._serve(), data)
            return
        write_answer(
            self._transport, problem_response(self._error, instance="/", request_id=""), is_last=True
        )
        self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, so that another connection may be refused with a response."""
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
