"""Counts what was refused on the node port, and logs it without letting strangers fill the log."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Protocol

from raftlog.clock import Clock
from raftlog.log_limit import LogLimit


class LogEvent(Protocol):
    """Takes one log event; ``structlog.get_logger().warning`` fits."""

    def __call__(self, event: str, **fields: object) -> object:
        """Log it. Fields never hold secrets."""


def log_to_standard_logging(event: str, **fields: object) -> None:
    """The event and its fields as one warning of the logger ``raftlog.transport``."""
    logging.getLogger("raftlog.transport").warning("%s %s", event, fields)


class Refusals:
    """Every refusal is counted by its reason; each reason is logged once per interval.

    The reasons are a fixed, small set, so neither the counts nor the memory of what was logged can
    be made to grow from outside.
    """

    def __init__(self, log: LogEvent, clock: Clock, interval_ms: int) -> None:
        self.counts: Counter[str] = Counter()
        self._log = log
        self._limit = LogLimit(clock.monotonic, interval_ms / 1000)

    def add(
        self, reason: str, *, direction: str, remote_address: str, claimed_node: int, detail: str = ""
    ) -> None:
        """One connection was closed for ``reason``; ``claimed_node`` may be a lie."""
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
