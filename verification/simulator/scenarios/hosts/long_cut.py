"""Cuts the link between two brokers for long, after all other faults are healed.

Decides: which link is cut, in which directions, and which broker dies during the cut. Checks that every
broker accepts requests during the cut (L2), and that the replicas of the dead broker are restored (L11).
Leaves to others: the checks after the link works again (``convergence``).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final

from raftlog.errors import RaftlogError
from raftlog.types import METADATA_GROUP
from verification.simulator.convergence import Convergence
from verification.simulator.machine import Machine
from verification.simulator.scenarios.healing.part import Healing
from verification.simulator.scenarios.hosts.odds import CUT, HostOdds
from verification.simulator.simulated_cluster import SimulatedCluster

LOOKS: Final = 4
LOOK_EVERY_S: Final = 3.0
SOON_S: Final = 6.0  # every broker serves again so soon after a leadership has moved


async def hold_cut(cluster: SimulatedCluster, odds: HostOdds, counts: Counter[str]) -> None:
    """Cut a link, check the cluster for a while, and mend the link. Without ``cuts`` in the odds,
    do nothing.
    """
    if not odds.cuts or len(cluster.members) < 3:
        return
    rng, convergence = cluster.rng("cut link"), Convergence(cluster, "while cut")
    await convergence.reached()
    pair = _pair(rng, cluster)
    counts[CUT] += 1
    one, other = pair[0].node, pair[1].node
    directions = rng.choice(([(one, other), (other, one)], [(one, other)], [(other, one)]))
    cluster.trace.note(None, f"{directions} are cut for long")
    cluster.network.cut(directions, holds=rng.random() < 0.5)
    healing = cluster.part(Healing)
    if odds.kills and healing is not None:
        healing.deaths.die_beside(rng, pair)
    await convergence.reached(_up(cluster))
    for _ in range(LOOKS):
        await asyncio.sleep(LOOK_EVERY_S)
        await convergence.reached(_up(cluster), within_s=SOON_S)
        await _confirm_metadata(cluster)
    if healing is not None:
        await healing.deaths.restored(cut_off=pair)
    cluster.network.mend()


async def _confirm_metadata(cluster: SimulatedCluster) -> None:
    """Check that every broker reaches the active controller, if necessary by way of a third broker."""
    for machine in _up(cluster):
        try:
            await machine.call(lambda broker: broker.controller.current_image(round(SOON_S * 1000)))
        except RaftlogError as error:
            detail = f"{machine.name} confirms no metadata in {SOON_S} s: {error}"
            cluster.violated("L2 a healed cluster works", detail)


def _up(cluster: SimulatedCluster) -> list[Machine]:
    return [machine for machine in cluster.members if machine.is_up]


def _pair(rng: random.Random, cluster: SimulatedCluster) -> tuple[Machine, Machine]:
    """Draw two brokers: mostly the active controller and either a leader or another broker."""
    leading = [machine for machine in cluster.members if machine.leads(METADATA_GROUP)]
    first = rng.choice(leading) if leading and rng.random() < 0.7 else rng.choice(cluster.members)
    return first, rng.choice([machine for machine in cluster.members if machine is not first])
