"""Wall clocks that jump, on one machine or on all, and the cluster time of brokers.

Decides: when clocks are wrong. No broker can detect a wrong clock while none knows the time: so machines
start with right clocks unless a majority of the others run and know it. Checks the stamps of leaders
meanwhile (I32). Leaves to others: the other checks (``log_starts`` for deleted records, ``convergence`` for
producers).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from raftlog.node.cluster_time import CLOCK_BOUNDS
from raftlog.types import GroupId
from verification.simulator.log_view import Entry
from verification.simulator.machine import WALL_MS_AT_START, Machine
from verification.simulator.run import Run

DAY_MS: Final = 86_400_000
SKEWS_MS: Final = (-3_600_000, -200, 0, 200, 3_600_000, -2 * DAY_MS, 2 * DAY_MS, 20 * DAY_MS)
RIGHT_MS: Final = 200
ALL_ODDS: Final = 0.3  # for a jump of all clocks together


class Clocks:
    """All wall clocks of one run."""

    def __init__(self, run: Run, machines: Sequence[Machine]) -> None:
        self._run = run
        self._machines = machines
        self._dated_terms: set[tuple[GroupId, int]] = set()  # their leaders knew the time at their election

    def jump(self, rng: random.Random) -> None:
        """One clock is wrong from now on, or all are, by little or by days; half of them for a while only."""
        machines = self._machines
        chosen = machines if rng.random() < ALL_ODDS else [rng.choice(machines)]
        skew_ms = rng.choice(SKEWS_MS)
        if not self._may_be_wrong(None):
            return
        for machine in chosen:
            machine.wall_skew_ms = skew_ms
            self._run.trace.note(machine.node, f"has a clock that is off by {skew_ms / 1000} s")
        if rng.random() < 0.5:
            self._run.loop.later(rng.uniform(0.05, 3.0), self.set_right)

    def set_right(self) -> None:
        for machine in self._machines:
            machine.wall_skew_ms = 0

    @property
    def are_right(self) -> bool:
        """True if a majority of the clocks are right, within the tolerance."""
        right = [one for one in self._machines if abs(one.wall_skew_ms) <= RIGHT_MS]
        return 2 * len(right) > len(self._machines)

    def starts(self, machine: Machine) -> None:
        if not self._may_be_wrong(machine):
            self.set_right()

    def knows(self, machine: Machine) -> bool:
        """True if this machine's broker uses a time that a majority agreed on."""
        return machine.broker is not None and machine.broker.host.clock.is_known

    def leads(self, machine: Machine, group: GroupId, term: int) -> None:
        """A machine has a new leader: if it knows the time, it must stamp it."""
        if self.knows(machine):
            self._dated_terms.add((group, term))

    @property
    def now_s(self) -> float:
        """The time, since the run began."""
        return self._run.loop.now

    def check_stamp(self, group: GroupId, entry: Entry, stamp_ms: int | None) -> None:
        """A new entry: the stamp of its leader is near the time."""
        if stamp_ms is None or (group, entry.term) not in self._dated_terms:
            return
        off_ms = stamp_ms - WALL_MS_AT_START - round(self._run.loop.now * 1000)
        if abs(off_ms) > CLOCK_BOUNDS.jump_ms_max:
            detail = f"group {group}: {entry} is dated {off_ms / 1000:+.1f} s off"
            self._run.violated("I32 stamps are near cluster time", detail)

    def _may_be_wrong(self, starting: Machine | None) -> bool:
        machines = self._machines
        return 2 * sum(self.knows(one) for one in machines if one is not starting) > len(machines)
