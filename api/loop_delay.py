"""Measures how late the event loop is: a callback that comes late stands for all that waited with it.

Looks twenty times a second, so a block of 50 ms or more is always seen. One that falls between two looks
may be missed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

INTERVAL_S: Final = 0.05
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class LoopDelay:
    """Watches the loop it is made in until ``stop``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = Histogram(
            "raftlog_event_loop_delay_seconds",
            "How late a callback of the event loop came.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._due = 0.0
        self._handle = self._wait()

    def stop(self) -> None:
        """Look no more."""
        self._handle.cancel()

    def _wait(self) -> asyncio.TimerHandle:
        self._due = self._loop.time() + INTERVAL_S
        return self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._seconds.observe(max(0.0, self._loop.time() - self._due))
        self._handle = self._wait()
