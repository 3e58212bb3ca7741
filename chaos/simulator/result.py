"""What a run of any level came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from chaos.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be, when it was seen."""

    at_s: float
    invariant: str
    detail: str


class Broken(Exception):
    """Something that must hold does not: number and words of ``docs/invariants.md``, and what was seen."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One seed's outcome. ``happened`` are the faults, in the order in which they came."""

    name: str  # the seed, with its level
    faults: Counter[str]
    acknowledged: int
    violations: tuple[Violation, ...]
    simulated_s: float
    trace: int
    timeline: str
    happened: Schedule = ()
