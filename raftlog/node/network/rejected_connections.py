"""Counts refused connections on the node port, and logs them at a limited rate.

Also logs peers that cannot be dialled: a wrong host name looks like a peer that is down.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, Protocol

from raftlog.clock import Clock
from raftlog.log_limit import LogLimit

DIAL_PATIENCE_S: Final = 5.0
DIAL_INTERVAL_S: Final = 60.0


class LogEvent(Protocol):
    """Logs one event; ``structlog.get_logger().warning`` fits this interface."""

    def __call__(self, event: str, **fields: object) -> object:
        """Log one event. Fields never hold secrets."""


def log_to_standard_logging(event: str, **fields: object) -> None:
    """Log the event and its fields as one warning of the logger ``raftlog.transport``."""
    logging.getLogger("raftlog.transport").warning("%s %s", event, fields)


class Refusals:
    """Counts every refusal by its reason; logs each reason once per interval.

    The reasons are a fixed, small set, so other hosts cannot make the counts or the memory
    of logged reasons grow.
    """

    def __init__(self, log: LogEvent, clock: Clock, interval_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._limit = LogLimit(clock.monotonic, interval_ms / 1000)

    def add(
        self, reason: str, *, direction: str, remote_address: str, claimed_node: int, detail: str = ""
    ) -> None:
        """Count and log a connection that was closed for ``reason``; ``claimed_node`` is unproven."""
        self.counts[reason] += 1
        left_out = self._limit.left_out(reason)
        if left_out is not None:
            self._log(
                "connection_refused",
                reason=reason,
                direction=direction,
                remote_address=remote_address,
                claimed_node=claimed_node,
                not_logged_since_last=left_out,
                **({"detail": detail} if detail else {}),
            )


class DialFailures:
    """Failed attempts to connect to one peer, since the last successful attempt.

    Failures are logged once they have lasted for ``DIAL_PATIENCE_S``, and then at intervals: brokers that
    start together dial each other before all of them listen.
    """

    def __init__(self, log: LogEvent, clock: Clock, peer: int) -> None:
        self._log = log
        self._clock = clock
        self._peer = peer
        self._limit = LogLimit(clock.monotonic, DIAL_INTERVAL_S)
        self._since: float | None = None

    def ended(self) -> None:
        """Note that a connection was made."""
        self._since = None

    def add(self, host: str, port: int, reason: str) -> None:
        """Count a failed attempt; log it if the failures have lasted for ``DIAL_PATIENCE_S``."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since >= DIAL_PATIENCE_S and self._limit.left_out("") is not None:
            fields = {"peer": self._peer, "host": host, "port": port, "reason": reason}
            self._log("peer_cannot_be_dialled", **fields, failing_for_s=round(now - self._since))
