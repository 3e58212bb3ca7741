"""Brokers that die, permanently or for longer than a restart takes, and the replicas that must be restored.

Decides: which broker may die, so that no record and no majority of the metadata group is lost. A broker may
die only when the replicas of all earlier dead brokers are restored and no replica moves. Checks at the end,
while permanently dead brokers are still off, that each partition has its full number of replicas (L11).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.metadata.refusals import AVOIDED_MS
from raftlog.types import METADATA_GROUP
from verification.simulator.machine import Machine
from verification.simulator.placement_checks import misplaced
from verification.simulator.scenarios.healing.decommissions import Decommissions
from verification.simulator.scenarios.healing.odds import HealingOdds
from verification.simulator.simulated_cluster import SimulatedCluster

RESTORED: Final = "L11 the replicas of dead brokers are restored"
RESTORED_S: Final = 60.0 + AVOIDED_MS / 1000  # after the last fault; a report of then is still believed
AWAY_S: Final = (1.0, 3.0, 5.0, 8.0, 15.0)


class BrokerDeaths:
    """The dead brokers of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        odds: HealingOdds,
        counts: Counter[str],
        decommissions: Decommissions,
    ) -> None:
        self._cluster = cluster
        self._counts = counts
        self._decommissions = decommissions
        self._odds = odds

    async def registered(self) -> None:
        """Return once all brokers are registered: a topic that is created earlier cannot use all racks."""
        is_registered = False
        while not is_registered:
            await asyncio.sleep(0.1)
            image = self._image()
            is_registered = image is not None and len(image.brokers) == len(self._cluster.machines)

    @property
    def candidates(self) -> list[Machine]:
        """The machines whose brokers may die now."""
        cluster, image = self._cluster, self._image()
        off = [machine for machine in cluster.machines if machine.broker is None]
        if image is None or 2 * (len(off) + 1) >= len(cluster.machines):
            return []
        gone = {machine.node for machine in off}
        up = [machine for machine in cluster.machines if machine not in off]
        if any(gone & {*partition.replicas} for partition in _partitions(image)):
            return []
        leaving = {each.broker_id for each in image.brokers.values() if each.decommissioned}
        moving = [partition for partition in _partitions(image) if partition.target]
        if moving and len(leaving) != 1:
            return []
        if any({*partition.replicas} - {*partition.target} != leaving for partition in moving):
            return []
        if not all(machine.node in image.brokers and image.brokers[machine.node].alive for machine in up):
            return []
        if moving:  # away from the one that is decommissioned
            up = [machine for machine in up if machine.node in leaving]
        racks = {self._rack(machine) for machine in off} - {None}
        halves = cluster.checker.groups[METADATA_GROUP].halves
        return [
            machine
            for machine in up
            if self._rack(machine) not in racks
            and all(2 * len(half - gone - {machine.node}) > len(half) for half in halves)
        ]

    def die(self, rng: random.Random) -> None:
        """Kill a candidate or cut its power; it stays off permanently or for a while."""
        machine = rng.choice(self.candidates)
        left = self._odds.dead_for_good - sum(each.is_gone for each in self._cluster.machines)
        machine.is_kept_off = True
        machine.is_gone = left > 0 and rng.random() < 0.5
        rng.choice((machine.kill, machine.lose_power))()
        if machine.is_gone:
            self._counts["die for good"] += 1
            self._cluster.trace.note(machine.node, "died for good")
        else:
            self._cluster.loop.later(rng.choice(AWAY_S), self._return, machine)

    def die_beside(self, rng: random.Random, pair: Collection[Machine]) -> None:
        """Let a broker die permanently, such that the active controller reaches a majority of each of its
        partitions.

        ``pair`` are two brokers that do not reach each other; one of them may be the controller.
        """
        image, nodes = self._image(), {machine.node for machine in pair if not machine.leads(METADATA_GROUP)}
        assert image is not None
        rows = [{*partition.all_replicas} for partition in _partitions(image)]
        able = [
            machine
            for machine in self.candidates
            if machine not in pair and not any(machine.node in row and nodes & row for row in rows)
        ]
        if able:
            machine = rng.choice(able)
            machine.is_kept_off = machine.is_gone = True
            self._counts["die for good"] += 1
            rng.choice((machine.kill, machine.lose_power))()

    def _return(self, machine: Machine) -> None:
        if not machine.is_up:
            machine.start()

    async def restored(self, cut_off: Collection[Machine] = ()) -> None:
        """Wait until all replicas are restored, then start the dead brokers, whose former replicas must be
        removed.

        The brokers ``cut_off`` may not know which replicas they should hold.
        """
        cluster = self._cluster
        deadline = cluster.loop.now + RESTORED_S
        problems = list(self._problems(cut_off))
        while problems and cluster.loop.now < deadline:
            await asyncio.sleep(0.25)
            problems = list(self._problems(cut_off))
        for problem in problems:
            cluster.violated(RESTORED, problem)
        for machine in cluster.machines:
            if machine.is_gone:
                machine.is_gone = False
                machine.start()

    def _problems(self, cut_off: Collection[Machine]) -> Iterator[str]:
        image = self._image()
        if image is None:
            yield "no broker runs"
            return
        up = {machine.node for machine in self._cluster.machines if machine.is_up}
        for topic in image.topics.values():
            for partition in topic.partitions:
                where = f"{topic.name}/{partition.partition}"
                replicas = partition.replicas
                if partition.target:
                    yield f"{where} moves from {list(replicas)} to {list(partition.target)}"
                elif len(replicas) != topic.replication_factor or len({*replicas}) != len(replicas):
                    yield f"{where} is on {list(replicas)}, and has {topic.replication_factor} replicas"
                elif not up.issuperset(replicas):
                    yield f"{where} is on {list(replicas)}, and only {sorted(up)} run"
                elif len({image.brokers[node].rack or node for node in replicas}) != len(replicas):
                    yield f"{where} is on {list(replicas)}, of which two share a rack"
        yield from self._decommissions.problems(image)
        for machine in self._cluster.members:
            if machine not in cut_off:
                yield from misplaced(machine)

    def _image(self) -> MetadataImage | None:
        images = [machine.broker.controller.image for machine in self._cluster.machines if machine.broker]
        return max(images, key=lambda image: image.version, default=None)

    def _rack(self, machine: Machine) -> str | None:
        return self._cluster.odds.settings.rack(machine.node)


def _partitions(image: MetadataImage) -> Iterator[PartitionInfo]:
    for topic in image.topics.values():
        yield from topic.partitions
