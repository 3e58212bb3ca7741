"""Both rings under one name: ``core:17`` is a run of bare cores, ``brokers:17`` or ``17`` of whole brokers.

Decides: how many seeds of each a number of seeds means. One of ten runs whole brokers, which find what lies
between the parts; the other nine run bare cores, which are faster and whose members come and go.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.simulator.core_ring.life import run_core
from chaos.simulator.core_ring.odds import CoreOdds
from chaos.simulator.odds import Odds
from chaos.simulator.result import Result
from chaos.simulator.schedule import Schedule
from chaos.simulator.simulation import run

CORE, BROKERS = "core", "brokers"
BROKERS_EVERY = 10


@dataclass(frozen=True, slots=True)
class Seed:
    """A ring and a number in it."""

    ring: str
    number: int

    def __str__(self) -> str:
        return f"{self.ring}:{self.number}"

    @classmethod
    def named(cls, name: str) -> Seed:
        """Raises ``ValueError`` naming the remedy."""
        ring, _, number = name.rpartition(":")
        if ring not in ("", CORE, BROKERS) or not number.isdigit():
            raise ValueError(f"{name!r} is no seed: say a number, {CORE}:number or {BROKERS}:number")
        return cls(ring or BROKERS, int(number))

    def odds(self) -> Odds | CoreOdds:
        """What this seed draws."""
        rng = random.Random(f"{self.number} odds")
        return Odds.drawn(rng) if self.ring == BROKERS else CoreOdds.drawn(rng)

    def run(
        self,
        odds: Odds | CoreOdds | None = None,
        *,
        schedule: Schedule | None = None,
        keeps_lines: bool = False,
        stops_at_violation: bool = False,
    ) -> Result:
        """Its life, or that of other odds; the bare core always stops at a violation."""
        if self.ring == CORE:
            assert not isinstance(odds, Odds)
            return run_core(self.number, odds, schedule=schedule, keeps_lines=keeps_lines)
        assert not isinstance(odds, CoreOdds)
        return run(
            self.number,
            odds,
            schedule=schedule,
            keeps_lines=keeps_lines,
            stops_at_violation=stops_at_violation,
        )


def seeds(first: int, count: int) -> Iterator[Seed]:
    """So many, of both rings."""
    for number in range(first, first + count):
        earlier = -(-number // BROKERS_EVERY)
        if number % BROKERS_EVERY:
            yield Seed(CORE, number - earlier)
        else:
            yield Seed(BROKERS, earlier)
