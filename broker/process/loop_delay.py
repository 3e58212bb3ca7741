"""Measures how long the event loop is blocked, by the delay of a regular callback.

The callback is due twenty times a second, so a block of 50 ms or more is always detected; a shorter block may
be missed. A callback is late because this process blocked the loop, or because its thread had no CPU. Linux
reports how long the thread waited for a CPU (``/proc/thread-self/schedstat``).
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

INTERVAL_S: Final = 0.05
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SCHEDULER: Final = "/proc/thread-self/schedstat"  # "running_ns waiting_ns turns"
_LINE_BYTES: Final = 100


def waited_for_processor_s() -> float:
    """The total time that this thread has waited for a CPU, in seconds; 0 if the system does not report
    it.
    """
    try:
        descriptor = os.open(_SCHEDULER, os.O_RDONLY)
        try:
            return int(os.read(descriptor, _LINE_BYTES).split()[1]) / 1e9
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0.0


class LoopDelay:
    """Measures the delays of the event loop in which it was created, until ``stop``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = _histogram(
            "raftlog_event_loop_delay_seconds", "Delay of a callback of the event loop.", registry
        )
        self._held = _histogram(
            "raftlog_event_loop_held_seconds",
            "Delay without the time in which the thread waited for a CPU.",
            registry,
        )
        self._due, self._waited = 0.0, waited_for_processor_s()
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()

    def _wait(self) -> asyncio.TimerHandle:
        self._due = self._loop.time() + INTERVAL_S
        return self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        late = max(0.0, self._loop.time() - self._due)
        self._late.observe(late)
        before, self._waited = self._waited, waited_for_processor_s()
        self._held.observe(max(0.0, late - (self._waited - before)))
        self._handle = self._wait()


def _histogram(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, buckets=_BUCKETS, registry=registry)
