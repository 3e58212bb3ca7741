"""The random parameters of runs in which brokers die and the cluster restores their replicas."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.broker_odds import BrokerOdds
from verification.simulator.odds import AIMED_FAULTS, Odds

DIE: Final = "die"
"""Fault: a broker dies permanently, or is off for a while."""

DECOMMISSION: Final = "decommission"
"""Fault: an operator decommissions a broker, permanently or for a while."""

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
"""Kinds of other faults during which brokers may be silent. Only in runs without racks, where any broker may
be chosen.
"""

HEARD: Final = ("transfer", "lead again", "slow disk", "full disk")
"""Kinds of other faults during which all running brokers stay reachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingOdds:
    """The parameters of one run's deaths. In a run with racks each rack has two brokers."""

    restore_after_ms: int = 300_000  # no run takes as long
    moves_max: int = 10
    dead_for_good: int = 0  # brokers, at most
    has_racks: bool = False
    is_decommissioning: bool = False

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the parameters; in half of the runs few replicas move at a time."""
        has_racks = rng.random() < 0.3
        return cls(
            restore_after_ms=rng.choice((3_500, 4_000, 5_000)),
            moves_max=rng.choice((1, 2, 10, 10)),
            dead_for_good=rng.choice((1, 1, 2)),
            has_racks=has_racks,
            is_decommissioning=not has_racks and rng.random() < 0.6,
        )

    def settings_of(self, settings: BrokerOdds) -> BrokerOdds:
        """Return broker settings with the values of this scenario."""
        return replace(
            settings,
            restore_after_ms=self.restore_after_ms,
            restore_moves_max=self.moves_max,
            has_racks=self.has_racks,
        )


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, HealingOdds]:
    """Draw a long run in which brokers die one after another, with few other faults and with more brokers
    than replicas need.

    No message is delayed by an election timeout: otherwise no controller would lead for ``restore_after_ms``.
    """
    cluster, healing = cluster.with_few_clients(rng), HealingOdds.drawn(rng)
    brokers = 6 if healing.has_racks else rng.choice((4, 5, 5, 6))
    if healing.is_decommissioning:  # the others are enough for all replicas when those are dead
        healing = replace(healing, dead_for_good=min(healing.dead_for_good, brokers - 4))
    others = HEARD if healing.has_racks else (*HEARD, *SILENT)
    rates = (1.0,) if cluster.retention_ms >= 0 else (1.0, 1.0, 0.9, 1.1)
    cluster = replace(
        cluster,
        brokers=brokers,
        rates=tuple(rng.choice(rates) for _ in range(brokers)),
        network=replace(cluster.network, jitter_s=min(cluster.network.jitter_s, 0.02)),
        timed=(
            *(DIE,) * 4,
            *rng.sample(others, rng.choice((0, 1, 1, 2))),
            *(DECOMMISSION,) * (2 if healing.is_decommissioning else 0),
        ),
        aimed=dict.fromkeys(AIMED_FAULTS, 0.0),
        pause_s=rng.choice((0.5, 1.0, 2.0)),
        faults_s=rng.choice((20.0, 30.0, 40.0)),
        partitions=rng.choice((2, 4, 6)),
        think_s=0.2,
        settings=healing.settings_of(cluster.settings),
    )
    return cluster, healing
