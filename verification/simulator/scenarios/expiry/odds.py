"""The random parameters of runs in which unused rows expire while wall clocks jump."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.odds import Odds

EXPIRY_ODDS: Final = 0.15  # of runs with a consumer group
CLOCKS: Final = ("wall clock", "wall clock")
BESIDE_CLOCKS: Final = ("kill", "lose power", "isolate leader", "depose", "transfer")
"""Kinds of other faults in such a run: few, and none that delays an append for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryOdds:
    """The settings of expiry. The interval at which coordinators search for unused rows equals the
    retention.
    """

    retention_ms: int  # of the offsets of a group without members
    pause: float  # the mean time between two commits of a group, as a multiple of the retention

    @classmethod
    def drawn(cls, rng: random.Random) -> Self | None:
        """Draw the parameters for one seed; None for most seeds."""
        if rng.random() >= EXPIRY_ODDS:
            return None
        return cls(retention_ms=rng.choice((1_000, 2_000)), pause=rng.choice((0.3, 0.7, 1.5)))


def perhaps(cluster: Odds, rng: random.Random) -> Odds:
    """Return a run of groups or transactions; in some runs unused rows expire, with few other faults.

    In the runs with expiry wall clocks jump, and all clocks run equally fast.
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
