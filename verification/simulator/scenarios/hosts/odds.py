"""The random parameters of runs in which brokers are copied and moved, or a link is cut for long."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.odds import Odds
from verification.simulator.scenarios.healing.odds import HealingOdds
from verification.simulator.scenarios.joining.odds import BESIDE_JOINS, JOIN, JoinOdds
from verification.simulator.side_draws import beside

BESIDE: Final = "copy beside its original"
"""Fault: a copy of a broker's disk is started while the broker runs. Later both may restart, and all other
brokers.
"""

ADDRESS: Final = "another address"
"""Fault: a broker that was stopped starts at another address, which only its own settings name."""

ADDRESSES: Final = "other addresses"
"""Fault: all brokers are stopped and start at other addresses; their settings name the first brokers'
addresses.
"""

UNHEARD: Final = "unheard starts"
"""Fault: an older copy takes the place of a broker's disk, and the broker starts more than 32 times without a
peer.
"""

CUT: Final = "cut link"
"""Fault: no frame passes between two brokers, in one or both directions, for long; after all other faults."""

RESTORED: Final = "restore of all brokers"
"""Fault: at the end all brokers start from copies of themselves, made at one moment or at different
moments.
"""

STOPPED: Final = "stopped"
RUNNING: Final = "running"

OF_COPIES: Final = (BESIDE, UNHEARD)
OF_ADDRESSES: Final = (ADDRESS, ADDRESSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOdds:
    """The parameters of copies, moves and cuts in one run."""

    cuts: bool  # a link in the end
    kills: bool  # a broker while the link is cut; its replicas must be restored
    restores: str = ""  # all brokers in the end, from copies of stopped or of running ones
    copy_s: float = 0.0  # between the copies of two running brokers

    @classmethod
    def drawn(cls, rng: random.Random, *, has_spare: bool) -> Self:
        """Draw the parameters. If there are more brokers than replicas need, a broker may die."""
        cuts = has_spare or rng.random() < 0.3
        return cls(cuts=cuts, kills=has_spare and rng.random() < 0.7)

    def with_restore(self, rng: random.Random) -> HostOdds:
        """Return a copy with a restore of all brokers, in half of the runs.

        In most restores the copies are made while the brokers run, at different moments.
        """
        restores = rng.choice(("", "", "", STOPPED, RUNNING, RUNNING))
        return replace(self, restores=restores, copy_s=rng.choice((0.02, 0.2, 1.0)))


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, HostOdds]:
    """Draw a run in which brokers are copied, or join and change their addresses; in some runs a link is cut
    at the end.

    A run in which a link is surely cut has more brokers than replicas need, and no broker joins.
    """
    cluster = replace(cluster, faults_s=rng.choice((6.0, 10.0)), pause_s=rng.choice((0.5, 1.0)))
    is_cut = cluster.of(JoinOdds) is None
    others = tuple(kind for kind in cluster.timed if kind in BESIDE_JOINS)[:2]
    brokers = 5 if is_cut else cluster.brokers
    may_copy = cluster.replicas >= 3 or is_cut
    aims = (*OF_ADDRESSES, *(OF_COPIES if may_copy else ()))
    chosen = tuple(rng.sample(aims, 2)) * 2
    hosts = HostOdds.drawn(rng, has_spare=is_cut)
    settings = replace(cluster.settings, ages_disks=True)
    if hosts.kills:
        dying = HealingOdds(restore_after_ms=4_000, dead_for_good=1)
        cluster, settings = cluster.having(dying), dying.settings_of(settings)
    cluster = replace(
        cluster,
        brokers=brokers,
        rates=(1.0,) * brokers,
        replicas=3 if is_cut else cluster.replicas,
        timed=(*others, *chosen, *(() if is_cut else (JOIN,) * 2)),
        settings=settings,
    )
    return cluster, hosts.with_restore(beside(rng))
