"""Measures row 9 of the scoreboard: how long a client gets no acknowledgement when the leader fails.

One client sends one record after another to one partition or stream. In each trial the leader is killed,
stopped or isolated, or hands over its leadership. The gap is the time from the last acknowledgement before
the failure to the first acknowledgement after the failure. The loop is the same for raftlog
(``raftlog_outages``) and its peers (``nats_outages``, ``rabbitmq_outages``).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, pairwise
from typing import Final, Protocol

KILL: Final = "kill -9"
STOP: Final = "SIGSTOP"
ISOLATION: Final = "isolation"
SILENCE: Final = "isolation, packets dropped"
TRANSFER: Final = "transfer"
RECOVERED_S: Final = 60.0
_BEFORE_S: Final = 0.3  # time of acknowledgements before a trial
_PAUSE_S: Final = 0.01  # after a failure
_HELD_S: Final = 2.0  # a fault ends after this time

Send = Callable[[int], object]


class Replicated(Protocol):
    """A running cluster with one partition of three replicas."""

    @property
    def kinds(self) -> Collection[str]:
        """The kinds of failures that this system supports."""

    def wait_healthy(self) -> None:
        """Return once all replicas are in sync. Raises an error after ``RECOVERED_S``."""

    def client(self) -> AbstractContextManager[Send]:
        """Open a new client; yield a function that sends one record and waits until the record is stored.

        The function raises an ``Exception`` if no acknowledgement comes in time; the caller then sends the
        next record.
        """

    def failing(self, kind: str, trial: int) -> AbstractContextManager[None]:
        """Cause a failure, which lasts until the end of the block."""


class Acknowledgements:
    """The times at which one client received acknowledgements."""

    def __init__(self, system: Replicated) -> None:
        self.times: list[float] = []
        self._system = system
        self._stopping = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Send records in the background until the block ends."""
        thread = threading.Thread(target=self._send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _send(self) -> None:
        with self._system.client() as send:
            for number in count():
                if self._stopping.is_set():
                    return
                try:
                    send(number)
                except Exception:  # of any type, after the client's retries: the gap continues
                    time.sleep(_PAUSE_S)
                    continue
                self.times.append(time.monotonic())

    def wait_for_next(self) -> bool:
        """Wait for the next acknowledgement; False if none comes in ``RECOVERED_S``."""
        called = time.monotonic()
        while not self.times or self.times[-1] < called:
            if time.monotonic() > called + RECOVERED_S:
                return False
            time.sleep(0.001)
        return True

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two acknowledgements since ``since``.

        Waits for an acknowledgement after the call.
        """
        if not self.wait_for_next():
            return RECOVERED_S
        times = self.times[max(0, bisect_right(self.times, since) - 1) :]
        return max(after - before for before, after in pairwise(times))


def outages(system: Replicated, trials: int) -> dict[str, list[float]]:
    """Measure the gaps for each kind of failure, in seconds, ascending."""
    acknowledgements = Acknowledgements(system)
    with acknowledgements.going_on():
        found = {
            kind: sorted(_gap_s(system, acknowledgements, kind, trial) for trial in range(trials))
            for kind in system.kinds
        }
        system.wait_healthy()
    return found


def _gap_s(system: Replicated, acknowledgements: Acknowledgements, kind: str, trial: int) -> float:
    system.wait_healthy()
    acknowledgements.wait_for_next()
    time.sleep(_BEFORE_S)
    began = time.monotonic()
    with system.failing(kind, trial):
        if kind != TRANSFER:
            time.sleep(_HELD_S)
        return acknowledgements.longest_gap_s(began)
