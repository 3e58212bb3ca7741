"""Counts what was refused on the node port, and logs it without letting strangers fill the log."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Protocol

from raftlog.clock import Clock


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
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._logged_at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, reason: str, *, direction: str, remote_address: str, claimed_node: int) -> None:
        """One connection was closed for ``reason``; ``claimed_node`` may be a lie."""
        self.counts[reason] += 1
        now = self._clock.monotonic()
        if reason in self._logged_at and now - self._logged_at[reason] < self._interval_s:
            self._left_out[reason] += 1
            return
        self._logged_at[reason] = now
        self._log(
            "connection_refused",
            reason=reason,
            direction=direction,
            remote_address=remote_address,
            claimed_node=claimed_node,
            not_logged_since_last=self._left_out.pop(reason, 0),
        )
