"""Defines the result of a run of any level."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from verification.simulator.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant, and the time at which the violation was detected."""

    at_s: float
    invariant: str
    detail: str


class Broken(Exception):
    """A violated invariant: its number and title in ``docs/invariants.md``, and the evidence."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one seed. ``happened`` lists the injected faults in order."""

    name: str  # the seed, with its level
    faults: Counter[str]
    acknowledged: int
    violations: tuple[Violation, ...]
    simulated_s: float
    trace: int
    timeline: str
    happened: Schedule = ()
