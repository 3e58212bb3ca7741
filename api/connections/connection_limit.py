"""How many HTTP connections there may be, and the answer to those beyond.

A connection takes a file descriptor, and the logs and the peers of a broker need some, too. A connection
beyond the limit is answered ``overloaded`` and closed. Where many come at once, the oldest of those that have
asked nothing yet is closed without an answer. Health and metrics are served all the same: whoever watches
the broker must not take it for dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from api.connections.plain_requests import write_answer
from api.http.errors import problem_response
from api.resources.metrics import HttpMetrics
from raftlog.errors import Overloaded
from raftlog.log_limit import LogLimit
from raftlog.wire import paths

_log = logging.getLogger("raftlog.http")

ANSWERED_AT_ONCE_MAX: Final = 16  # of connections beyond the limit; their descriptors are in the reserve
ANSWER_S: Final = 1.0  # a connection beyond the limit is closed after so long
RETRY_AFTER_MS: Final = 1000
SERVED: Final = (b"GET /healthz/", f"GET {paths.METRICS} ".encode())


class ConnectionLimit:
    """``count`` says how many connections there are, ``serve`` gives the protocol of one that is served."""

    def __init__(
        self,
        count_max: int,
        count: Callable[[], int],
        serve: Callable[[], asyncio.Protocol],
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
        """The protocol of a connection that is one too many; None while there is room."""
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
    """A connection beyond the limit: its first bytes are answered, and it is closed a moment later."""

    def __init__(self, limit: ConnectionLimit) -> None:
        self._limit = limit
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, but not for long."""
        self._transport = made = cast("asyncio.Transport", transport)
        self._limit.refused[self] = None
        if len(self._limit.refused) > ANSWERED_AT_ONCE_MAX:
            next((other for other in self._limit.refused if not other.is_answered), self).abort()
            if made.is_closing():
                return
        self._deadline = asyncio.get_running_loop().call_later(ANSWER_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answer, and let the client close: a close of ours could overtake the answer."""
        if self.is_answered or self._transport is None:
            return
        self.is_answered = True
        if data.startswith(SERVED):
            protocol = self._limit.serve()
            self._transport.set_protocol(protocol)
            protocol.connection_made(self._transport)
            protocol.data_received(data)
            return
        error = Overloaded(
            f"this broker has {self._limit.count_max} HTTP connections open, no more than "
            "limits.connections_max; use fewer, ask another broker, or retry later",
            retry_after_ms=RETRY_AFTER_MS,
        )
        write_answer(self._transport, problem_response(error, instance="/", request_id=""), is_last=True)
        self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is room for another answer."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._limit.refused.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._transport.abort()
