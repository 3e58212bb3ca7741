"""Row 9 of the scoreboard: how long a client is without acknowledgements when the leader fails.

One client sends one record after another to one partition. In each trial its leader is killed, stopped, cut
off or relieved; the gap is the time from the last acknowledgement before to the first one after.
"""

from __future__ import annotations

import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Final

from chaos.harness.arena import Arena, Draw
from chaos.harness.faults import FAULTS
from chaos.harness.stage import Stage
from raftlog import Client
from raftlog.errors import RaftlogError

TRIALS: Final = 100
KINDS: Final = {"kill -9": "kill", "SIGSTOP": "pause", "isolation": "isolate-fully", "transfer": ""}
RECOVERED_S: Final = 60.0
BEFORE_S: Final = 0.3  # of acknowledgements before a trial
HELD_S: Final = 3.0  # a fault ends after this time


class Acknowledgements:
    """The times at which one client got them, with its ordinary retries."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.times: list[float] = []
        self._bootstrap = bootstrap
        self._topic = topic
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
        with Client(self._bootstrap) as client:
            for number in count():
                if self._stopping.is_set():
                    return
                try:
                    client.send(self._topic, number, partition=0)
                except RaftlogError:
                    continue  # after the client's own retries: the gap goes on
                self.times.append(time.monotonic())

    def longest_gap_s(self, since: float) -> float:
        """The longest time between two in succession since then; waits for one after this call."""
        called = time.monotonic()
        while not self.times or self.times[-1] < called:
            if time.monotonic() > called + RECOVERED_S:
                return RECOVERED_S
            time.sleep(0.001)
        times = self.times[max(0, bisect_right(self.times, since) - 1) :]
        return max(after - before for before, after in pairwise(times))


def measure(kind: str, trials: int) -> list[float]:
    """The gaps of so many trials, in seconds."""
    gaps = []
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-outages-") as name,
        Stage().open(Path(name), brokers=3, partitions=1) as arena,
    ):
        acknowledgements = Acknowledgements(arena.cluster.bootstrap, arena.topic)
        with acknowledgements.going_on():
            for trial in range(trials):
                arena.wait_healthy(RECOVERED_S)
                time.sleep(BEFORE_S)
                gaps.append(_trial(arena, acknowledgements, KINDS[kind], trial))
            arena.wait_healthy(RECOVERED_S)
    return gaps


def _trial(arena: Arena, acknowledgements: Acknowledgements, fault: str, seed: int) -> float:
    began = time.monotonic()
    if not fault:
        row = arena.partitions()[0]
        to = next(broker for broker in row.replicas if broker != row.leader)
        with Client(arena.cluster.bootstrap) as client:
            client.replicas.transfer_leadership(arena.topic, 0, to=to)
        return acknowledgements.longest_gap_s(began)
    steps = FAULTS[fault].inject(arena, Draw(arena, seed, "leader"))
    next(steps)
    time.sleep(HELD_S)
    gap_s = acknowledgements.longest_gap_s(began)
    next(steps, None)
    return gap_s


def outages(trials: int) -> dict[str, list[float]]:
    """The gaps of each kind, in seconds, ascending."""
    return {kind: sorted(measure(kind, trials)) for kind in KINDS}
