"""Holds the shared state of one seed's run: random parameters, time, network, and violations.

Decides: how a violation is handled. Leaves to others: the machines (``simulated_cluster``), and the phases
of the run (``simulation``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypedDict

from chaos.history import History
from raftlog.node.group_host import GroupHost
from raftlog.testing.fake_filesystem import PowerLost
from raftlog.types import TopicPartition
from verification.simulator.event_loop import Process, SimulatedLoop
from verification.simulator.network import SimulatedNetwork
from verification.simulator.odds import Odds
from verification.simulator.result import Violation
from verification.simulator.schedule import Schedule
from verification.simulator.trace import Trace

TOPIC = "orders"
VIOLATIONS_MAX = 3  # of one kind


class RunOptions(TypedDict, total=False):
    """The options of a run. With a ``schedule`` the run has exactly the faults in it."""

    schedule: Schedule | None
    keeps_lines: bool  # of the trace
    stops_at_violation: bool


class Run:
    """One seed's run. All randomness comes from ``rng``, which gives each subsystem a stream by its name."""

    def __init__(
        self,
        seed: int,
        odds: Odds | None = None,
        *,
        schedule: Schedule | None = None,
        keeps_lines: bool = False,
        stops_at_violation: bool = False,
    ) -> None:
        self.seed = seed
        self.schedule = schedule
        self._stops_at_violation = stops_at_violation
        self.odds = odds or Odds.drawn(self.rng("odds"))
        self.violations: list[Violation] = []
        self.history = History()
        self.is_producing = True
        self.is_healed = False
        self.checked = [TopicPartition(TOPIC, number) for number in range(self.odds.partitions)]
        thread_rng = self.rng("threads")
        self.loop = SimulatedLoop(self, lambda process: thread_rng.random() * 0.002)
        self.trace = Trace(lambda: self.loop.now, keeps_lines=keeps_lines)
        self.network = SimulatedNetwork(
            self.loop,
            self.rng("network"),
            self.odds.network,
            self.odds.settings.frame_limits.frame_bytes_max,
        )
        self._processes = 0
        self._producer_ids: set[int] = set()

    def rng(self, name: str) -> random.Random:
        """Return the stream of random numbers of one subsystem, which is independent of all other streams."""
        return random.Random(f"{self.seed} {name}")

    def next_process(self) -> int:
        """Return a new process number, which identifies a client in the history."""
        self._processes += 1
        return self._processes

    def given_producer_id(self, producer_id: int) -> None:
        """Check that no producer id is allocated twice (I14)."""
        if producer_id in self._producer_ids:
            self.violated("I14 producer ids are unique", f"{producer_id} was given twice")
        self._producer_ids.add(producer_id)

    def violated(self, invariant: str, detail: str) -> None:
        """Record a violation."""
        self.trace.note(None, f"VIOLATION {invariant}: {detail}")
        if sum(known.invariant == invariant for known in self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(self.loop.now, invariant, detail))
        self.loop.is_stopped = self._stops_at_violation

    async def rest(self) -> None:
        """In a run with quiet phases, wait until the current quiet phase is over."""
        if self.odds.quiet_s and not self.is_healed:
            period_s = self.odds.busy_s + self.odds.quiet_s
            since_s = self.loop.now % period_s
            if since_s > self.odds.busy_s:
                await asyncio.sleep(period_s - since_s)

    # Events of the loop.

    @property
    def watched(self) -> Callable[..., object]:
        """The method after whose calls checks run: a host drains a core's outputs at the moment of the core's
        inputs.
        """
        return GroupHost._drain

    def stepped(self, process: Process) -> None:
        """Handle a process whose host has drained its groups."""

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """Record an exception that was not caught."""
        if isinstance(error, PowerLost) or (process is not None and not process.is_alive):
            return
        name = "a client" if process is None else process.name
        self.violated("I9 no uncaught error", f"{name}: {message}: {error!r}")
