"""The limit of HTTP connections, and the response beyond it.

A connection takes a file descriptor, and the logs and the peers of a broker need some, too. A connection
beyond the limit gets ``overloaded`` and is closed. If many arrive at once, the oldest of those without
a request are closed without a response. Health and metrics are always served, so that a monitor does not
take the broker for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from api.connections.handing_over import hand_over
from api.connections.plain_requests import write_answer
from api.http.errors import problem_response
from api.resources.metrics import HttpMetrics
from raftlog.errors import Overloaded
from raftlog.log_limit import LogLimit
from raftlog.wire import paths

_log = logging.getLogger("raftlog.http")

ANSWERED_AT_ONCE_MAX: Final = 16  # of connections beyond the limit; their descriptors are in the reserve
ANSWER_S: Final = 1.0  # a connection beyond the limit is closed after this time
RETRY_AFTER_MS: Final = 1000
_PATHS: Final = ("/healthz/", f"{paths.METRICS} ")
SERVED: Final = tuple(f"{method} {path}".encode() for method in ("GET", "HEAD") for path in _PATHS)


class ConnectionLimit:
    """``count`` returns the number of connections, ``serve`` the protocol of an accepted one."""

    def __init__(
        self,
        count_max: int,
        count: Callable[[], int],
        serve: Callable[[], asyncio.BaseProtocol],
        metrics: HttpMetrics,
    ) -> None:
        self.count_max = count_max
        self.serve = serve
        self.refused: dict[RefusedConnection, None] = {}
        self._count = count
        self._metrics = metrics
        self._log_limit = LogLimit(asyncio.get_running_loop().time)
        metrics.watch_connections(count)

    def refuse(self) -> RefusedConnection | None:
        """The protocol of a connection beyond the limit; None below the limit."""
        if self._count() < self.count_max:
            return None
        self._metrics.connection_refused()
        left_out = self._log_limit.left_out("connections_max")
        if left_out is not None:
            _log.warning(
                "an HTTP connection is refused, %d are open (limits.connections_max); %d more since",
                self.count_max,
                left_out,
            )
        return RefusedConnection(self)


class RefusedConnection(asyncio.Protocol):
    """A connection beyond the limit: it gets a response to its first bytes, and is closed shortly after."""

    def __init__(self, limit: ConnectionLimit) -> None:
        self._limit = limit
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
        """Respond, and let the client close: a close from this side could overtake the response."""
        if self.is_answered or self._transport is None:
            return
        self.is_answered = True
        if data.startswith(SERVED):
            hand_over(self._transport, self._limit.serve(), data)
            return
        error = Overloaded(
            f"this broker has {self._limit.count_max} HTTP connections open, the maximum "
            f"(limits.connections_max); use fewer, use another broker, or retry later",
            retry_after_ms=RETRY_AFTER_MS,
        )
        write_answer(self._transport, problem_response(error, instance="/", request_id=""), is_last=True)
        self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """Another connection may be refused with a response."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close at once."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._transport.abort()
