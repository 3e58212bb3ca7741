"""The random parameters of brokers that die, and of the cluster that restores their replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

DIE: Final = "die"
"""A broker dies for good, or is off for a while."""

DECOMMISSION: Final = "decommission"
"""An operator takes a broker out of use, for a while or for good."""

PLAN: Final = "plan"
"""An operator has the brokers balanced: by a new plan, an old one, or a cancelled one."""

SILENT: Final = (
    "kill",
    "lose power",
    "pause",
    "isolate leader",
    "isolate",
    "one way",
    "break connections",
    "silent links",
    "slow links",
)
"""Other faults, in which brokers may be silent: in runs without racks, where any broker may be chosen."""

HEARD: Final = ("transfer", "lead again", "slow disk", "full disk")
"""Faults in which all brokers that are up are heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingOdds:
    """One run's deaths. With racks each broker has one, and each rack has two brokers."""

    restore_after_ms: int
    moves_max: int
    dead_for_good: int  # brokers, at most
    has_racks: bool
    is_decommissioning: bool = False
    balance_after_ms: int = 120_000
    balancing_moves_max: int = 2

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Few moves at a time in half of the runs."""
        has_racks = rng.random() < 0.3
        return cls(
            restore_after_ms=rng.choice((3_500, 4_000, 5_000)),
            moves_max=rng.choice((1, 2, 10, 10)),
            dead_for_good=rng.choice((1, 1, 2)),
            has_racks=has_racks,
            is_decommissioning=not has_racks and rng.random() < 0.6,
        )

    def balancing(self, rng: random.Random) -> Self:
        """The same with brokers that are balanced, in some runs by plans of operators only."""
        after_ms, moves_max = rng.choice((1_000, 2_000, 4_000)), rng.choice((0, 1, 2, 2, 10))
        return replace(self, balance_after_ms=after_ms, balancing_moves_max=moves_max)

    @property
    def balances(self) -> bool:
        """Whether brokers are balanced within a run."""
        return self.balance_after_ms < 120_000

    def rack(self, node: int) -> str | None:
        """The rack of a broker."""
        return "abc"[(node - 1) % 3] if self.has_racks else None
