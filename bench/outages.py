"""Row 9 of the scoreboard: how long a client is without acknowledgements when the leader fails.

One client sends one record after another to one partition or stream. In each trial its leader is killed,
stopped, cut off or relieved; the gap is the time from the last acknowledgement before to the first one after.
The loop is the same for raftlog (``raftlog_outages``) and its peers (``nats_outages``, ``rabbitmq_outages``).
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
_BEFORE_S: Final = 0.3  # of acknowledgements before a trial
_PAUSE_S: Final = 0.01  # after a failure
_HELD_S: Final = 2.0  # a fault ends after this time

Send = Callable[[int], object]


class Replicated(Protocol):
    """A running cluster with one partition of three replicas."""

    @property
    def kinds(self) -> Collection[str]:
        """The failures that can be caused here."""

    def wait_healthy(self) -> None:
        """Return once all replicas take part. Raises an error after ``RECOVERED_S``."""

    def client(self) -> AbstractContextManager[Send]:
        """A client of its own that sends one record and waits until it is stored.

        Raises an ``Exception`` if that is not known in time; the next record is sent then.
        """

    def failing(self, kind: str, trial: int) -> AbstractContextManager[None]:
        """The failure has begun in the block, and ends with it."""


class Acknowledgements:
    """The times at which one client got them."""

    def __init__(self, system: Replicated) -> None:
        self.times: list[float] = []
        self._system = system
        self._stopping = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Send until the block ends."""
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
                except Exception:  # of many types, after the client's own retries: the gap goes on
                    time.sleep(_PAUSE_S)
                    continue
                self.times.append(time.monotonic())

    def wait_for_next(self) -> bool:
        """Return once there is another one; false if none comes in ``RECOVERED_S``."""
        called = time.monotonic()
        while not self.times or self.times[-1] < called:
            if time.monotonic() > called + RECOVERED_S:
                return False
            time.sleep(0.001)
        return True

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two in succession since then; waits for one after this call."""
        if not self.wait_for_next():
            return RECOVERED_S
        times = self.times[max(0, bisect_right(self.times, since) - 1) :]
        return max(after - before for before, after in pairwise(times))


def outages(system: Replicated, trials: int) -> dict[str, list[float]]:
    """The gaps of each kind, in seconds, ascending."""
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
