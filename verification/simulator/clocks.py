"""Wall clocks that jump, on one machine or on all, and the cluster time of brokers.

Decides: when clocks are wrong. Brokers can detect a wrong clock only if some brokers know the time. So a
machine starts with a right clock unless a majority of the other machines run and know the time. Meanwhile the
stamps of leaders are checked (I32). Leaves to others: the other checks (``log_starts`` for deleted records,
``convergence`` for producers).
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
        """Set one machine's clock, or all clocks, wrong by milliseconds up to days; half of the jumps end
        after a while.
        """
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
        """True if a majority of the clocks are within the tolerance of the true time."""
        right = [one for one in self._machines if abs(one.wall_skew_ms) <= RIGHT_MS]
        return 2 * len(right) > len(self._machines)

    def starts(self, machine: Machine) -> None:
        if not self._may_be_wrong(machine):
            self.set_right()

    def knows(self, machine: Machine) -> bool:
        """True if this machine's broker uses a time on which a majority of brokers agreed."""
        return machine.broker is not None and machine.broker.host.clock.is_known

    def leads(self, machine: Machine, group: GroupId, term: int) -> None:
        """Note that a machine leads a group in a new term: if its broker knows the time, it must stamp its
        batches with it.
        """
        if self.knows(machine):
            self._dated_terms.add((group, term))

    @property
    def now_s(self) -> float:
        """True time since the run began, in seconds."""
        return self._run.loop.now

    def check_stamp(self, group: GroupId, entry: Entry, stamp_ms: int | None) -> None:
        """Check that the leader's stamp of a new entry is near the true time."""
        if stamp_ms is None or (group, entry.term) not in self._dated_terms:
            return
        off_ms = stamp_ms - WALL_MS_AT_START - round(self._run.loop.now * 1000)
        if abs(off_ms) > CLOCK_BOUNDS.jump_ms_max:
            detail = f"group {group}: {entry} is dated {off_ms / 1000:+.1f} s off"
            self._run.violated("I32 stamps are near cluster time", detail)

    def _may_be_wrong(self, starting: Machine | None) -> bool:
        machines = self._machines
        return 2 * sum(self.knows(one) for one in machines if one is not starting) > len(machines)
