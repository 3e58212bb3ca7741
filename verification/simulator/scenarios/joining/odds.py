"""The random parameters of runs in which brokers join."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.odds import FORGET, STALE_METADATA, Odds
from verification.simulator.scenarios.healing.odds import DECOMMISSION, HealingOdds

JOIN: Final = "join"
"""Fault: an operator admits a broker that does not belong to the cluster."""

REMOVE: Final = "remove"
"""Fault: a decommissioned broker is removed permanently."""

BESIDE_JOINS: Final = (
    "kill",
    "lose power",
    "lose power in a change",
    "pause",
    "stop",
    "isolate leader",
    "depose",
    "isolate",
    "one way",
    "break connections",
    "silent links",
    "slow links",
    "slow disk",
    "full disk",
    "transfer",
    "lead again",
)
"""Kinds of other faults, some of which occur in each run with joining brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOdds:
    """The parameters of the joins of one run."""

    brokers: int  # that join, at most

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the number of brokers that join, from one to three: with two, a group of three voters gets
        five.
        """
        return cls(brokers=rng.choice((1, 2, 2, 3)))


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, JoinOdds]:
    """Draw a run with few clients in which brokers join, while other brokers crash, lose files, are
    decommissioned and removed.

    No broker is silent for so long that it counts as dead.
    """
    cluster = cluster.with_few_clients(rng)
    brokers = rng.choice((1, 3, 3, 3))
    forgets = (FORGET,) * rng.choice((0, 0, 2))
    leaves = (DECOMMISSION, DECOMMISSION, REMOVE, REMOVE) if rng.random() < 0.6 else ()
    stale = (STALE_METADATA,) if rng.random() < 0.3 else ()
    cluster = replace(
        cluster,
        brokers=brokers,
        rates=(1.0,) * brokers,
        replicas=min(cluster.replicas, brokers),
        network=replace(cluster.network, jitter_s=min(cluster.network.jitter_s, 0.02)),
        timed=(*(JOIN,) * 4, *rng.sample(BESIDE_JOINS, rng.choice((1, 2, 4))), *forgets, *leaves, *stale),
        aimed={kind: min(odds, 0.02) for kind, odds in cluster.aimed.items()},
        pause_s=max(cluster.pause_s, 0.3),
        faults_s=rng.choice((8.0, 12.0, 20.0)),
        think_s=0.2,
        retention_bytes=-1,
        retention_ms=-1,
    )
    return cluster.having(HealingOdds(is_decommissioning=True)), JoinOdds.drawn(rng)
