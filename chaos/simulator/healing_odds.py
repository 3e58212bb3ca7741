"""The random parameters of brokers that die, and of the cluster that restores their replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from chaos.simulator.broker_odds import BrokerOdds

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

    broker_dead_ms: int = 300_000  # no run takes as long
    moves_max: int = 10
    dead_for_good: int = 0  # brokers, at most
    has_racks: bool = False
    is_decommissioning: bool = False

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Few moves at a time in half of the runs."""
        has_racks = rng.random() < 0.3
        return cls(
            broker_dead_ms=rng.choice((3_500, 4_000, 5_000)),
            moves_max=rng.choice((1, 2, 10, 10)),
            dead_for_good=rng.choice((1, 1, 2)),
            has_racks=has_racks,
            is_decommissioning=not has_racks and rng.random() < 0.6,
        )

    def settings_of(self, settings: BrokerOdds) -> BrokerOdds:
        """Those of the brokers of such a run."""
        return replace(
            settings,
            broker_dead_ms=self.broker_dead_ms,
            healing_moves_max=self.moves_max,
            has_racks=self.has_racks,
        )
