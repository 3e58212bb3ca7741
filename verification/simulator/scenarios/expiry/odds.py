"""The random parameters of unused groups: they expire in the run, while wall clocks jump."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.odds import Odds

EXPIRY_ODDS: Final = 0.15  # of runs with a consumer group
CLOCKS: Final = ("wall clock", "wall clock")
BESIDE_CLOCKS: Final = ("kill", "lose power", "isolate leader", "depose", "transfer")
"""Other faults of such a run: few, and none that holds back an append for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryOdds:
    """The settings of expiry. Coordinators look for unused rows as often as the retention lasts."""

    retention_ms: int  # of the offsets of a group without members
    pause: float  # the mean time between two commits of a group, as a multiple of the retention

    @classmethod
    def drawn(cls, rng: random.Random) -> Self | None:
        """Draw the parameters for one seed; None for most of them."""
        if rng.random() >= EXPIRY_ODDS:
            return None
        return cls(retention_ms=rng.choice((1_000, 2_000)), pause=rng.choice((0.3, 0.7, 1.5)))


def perhaps(cluster: Odds, rng: random.Random) -> Odds:
    """Draw a run of groups or transactions; in some of them unused rows expire, among few other faults.

    Wall clocks jump, and run equally fast.
    """
    expiry = ExpiryOdds.drawn(rng)
    if expiry is None:
        return cluster
    cluster = replace(
        cluster,
        settings=replace(cluster.settings, unused_ms=expiry.retention_ms),
        timed=(rng.choice(BESIDE_CLOCKS), *CLOCKS),
        aimed=dict.fromkeys(cluster.aimed, 0.0),
        pause_s=0.3,
        rates=(1.0,) * cluster.brokers,
        faults_s=max(cluster.faults_s, 8.0),
    )
    return cluster.having(expiry)
