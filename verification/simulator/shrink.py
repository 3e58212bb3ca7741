"""Reduces a failing run to the few faults that matter.

Decides: the order of removal. First faults are removed, by halves and then one by one (ddmin). Then the time
after the last fault, then load, clients and network faults; at last more faults. Every trial is a run of the
same seed with fewer faults; a trial succeeds when it breaks an equal invariant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.levels import AnyOdds, Seed
from verification.simulator.network import NetworkOdds
from verification.simulator.odds import Odds
from verification.simulator.raft_level.group import MOMENTS
from verification.simulator.result import Result
from verification.simulator.schedule import Schedule
from verification.simulator.storage_level.odds import NEEDED, LogOdds

LIMIT_S: Final = 120.0
BROKERS_MIN: Final = 3
CALM_NETWORK: Final = NetworkOdds(latency_s=0.0005, jitter_s=0.0, refusal_odds=0.0, replay_odds=0.0)


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest run found that still violates the invariant."""

    seed: Seed
    odds: AnyOdds
    schedule: Schedule
    result: Result
    trials: int

    def describe(self) -> str:
        """Return the remaining faults and the timeline, as text."""
        lines = [f"{self.seed}, shrunk in {self.trials} runs to {len(self.schedule)} faults:"]
        unit = " s" if isinstance(self.odds, Odds) else " moments"
        lines += [
            f"  {fault.at:g}{unit}: {fault.kind}" + (f" on {fault.node}" if fault.node else "")
            for fault in self.schedule
        ]
        return "\n".join([*lines, f"with {self.odds}", self.result.timeline])


class Shrinker:
    """Shrinks one seed. It stops when nothing more can be removed, or when the time limit is reached."""

    def __init__(self, seed: Seed, found: Result, limit_s: float = LIMIT_S) -> None:
        """``found`` is the result of the failed run. Raises ``ValueError`` if this result has no
        violation.
        """
        if not found.violations:
            raise ValueError(f"{seed} breaks no invariant, so there is no failure to shrink")
        self._seed = seed
        self._invariant = found.violations[0].invariant
        self._until = time.monotonic() + limit_s
        self._trials = 0
        self._odds: AnyOdds = seed.odds()
        self._schedule: Schedule = found.happened

    def shrink(self) -> Shrunk | None:
        """Return the smallest failing run found; None if a run with the recorded faults does not
        fail again.
        """
        if not self._fails(self._odds, self._schedule):
            return None
        self._drop_faults()
        last = max((fault.at for fault in self._schedule), default=0.0)
        for simpler in _simplifications(self._odds, last):
            odds = simpler(self._odds)
            if odds != self._odds and self._fails(odds, self._schedule):
                self._odds = odds
        self._drop_faults()
        result = self._run(self._odds, self._schedule, keeps_lines=True)
        return Shrunk(self._seed, self._odds, self._schedule, result, self._trials)

    def _drop_faults(self) -> None:
        """Remove faults by delta debugging: remove smaller and smaller parts as long as the failure
        remains.
        """
        size = max(1, len(self._schedule) // 2)
        while self._schedule:
            dropped = False
            start = 0
            while start < len(self._schedule):
                fewer = self._schedule[:start] + self._schedule[start + size :]
                if self._fails(self._odds, fewer):
                    self._schedule, dropped = fewer, True
                else:
                    start += size
            if size == 1 and not dropped:
                return
            size = max(1, size // 2)

    def _fails(self, odds: AnyOdds, schedule: Schedule) -> bool:
        if time.monotonic() > self._until:
            return False
        result = self._run(odds, schedule)
        return any(violation.invariant == self._invariant for violation in result.violations)

    def _run(self, odds: AnyOdds, schedule: Schedule, *, keeps_lines: bool = False) -> Result:
        self._trials += 1
        return self._seed.run(odds, schedule=schedule, keeps_lines=keeps_lines, stops_at_violation=True)


def _simplifications(odds: AnyOdds, last: float) -> Iterator[Callable[[AnyOdds], AnyOdds]]:
    """Yield functions that simplify the parameters, the most effective first. ``last`` is the time of the
    last fault.
    """
    changes: list[dict[str, object]]
    if isinstance(odds, Odds):
        changes = [
            {"faults_s": min(odds.faults_s, last + 0.5)},
            {"offsets_are_compacted": False},
            {"churns_topics": False},
            {"administrators": 0},
            {"deletes_on_request": False},
            {"retention_bytes": -1, "retention_ms": -1},
            {"consumers": 0},
            {"producers": 1},
            {"partitions": 1},
            {"pipeline": 1},
            {"padding_bytes": 0},
            {"network": CALM_NETWORK},
            {"turn_s": 0.0},
            {"rates": (1.0,) * odds.brokers},
            {"brokers": BROKERS_MIN, "rates": (1.0,) * BROKERS_MIN},
        ]
    elif isinstance(odds, LogOdds):
        changes = [{"failing_syncs": 0.0}, {"midst": 0.0}, {"members": 0.0}]
    elif isinstance(odds, GroupOdds):
        changes = [
            {"faulty_ms": min(odds.faulty_ms, int(last * 1000) + 500)},
            {"late": 0.0},
            {"doubled": 0.0},
            {"lost": 0.0},
            {"zombie_ms": 0},
            {"are_static": 0.0},
            {"keeps_id": 0.0},
            {"changes": 0.0},
            {"partitions": 1},
            {"members": 1},
        ]
    else:
        changes = [
            {"trouble_steps": min(odds.trouble_steps, int(last) // MOMENTS + 20)},
            {"drop": 0.0},
            {"repeat": 0.0},
            {"delay_steps_max": 1},
            {"cut": 0.0},
            {"write_delay": 0.0},
            {"read": 0.0},
            {"propose": 0.05},
        ]
    for own in odds.scenarios if isinstance(odds, Odds) else ():
        yield partial(_without_scenario, type(own))
    for change in changes:
        yield partial(_replaced, change)
    if isinstance(odds, LogOdds):
        for kind in odds.works:
            if kind not in NEEDED:
                yield partial(_without, kind)


def _without_scenario(kind: type[object], odds: AnyOdds) -> AnyOdds:
    assert isinstance(odds, Odds)
    return odds.without(kind)


def _without(kind: str, odds: AnyOdds) -> AnyOdds:
    assert isinstance(odds, LogOdds)
    return replace(odds, works=odds.works | {kind: 0.0})


def _replaced(changes: dict[str, object], odds: AnyOdds) -> AnyOdds:
    return replace(odds, **changes)  # type: ignore[arg-type]
