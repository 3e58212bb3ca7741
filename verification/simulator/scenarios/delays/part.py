"""The delayed messages of a run: their clients, and the check that all messages arrive in their topics in
time (D7).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from delayed.records import TOPIC
from raftlog.types import GroupId
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.part import OFTEN_COMPACTED, Actor, Config, Part, Topic
from verification.simulator.patient_judge import Place
from verification.simulator.scenarios.delays.actors import DelayedClient
from verification.simulator.scenarios.delays.judge import Judge
from verification.simulator.scenarios.delays.odds import (
    AFTER_A_MOVE,
    AFTER_AN_ASSIGNMENT,
    BEFORE_A_MOVE,
    FLEETING,
    LONG_SEGMENT,
    REMINDERS,
    SHRINKING,
    SHRINKING_PARTITIONS,
    DelayOdds,
)
from verification.simulator.scenarios.fewer_partitions.actors import (
    WITHOUT_RETURN,
    Known,
    PartitionAdministrator,
)
from verification.simulator.simulated_cluster import SimulatedCluster

IN_TIME: Final = "D7 without faults a due message comes to its topic"
RECOVERY_S: Final = 20.0  # until the next due message is in its topic
LIMITED: Final = "max.message.bytes lowered"
REDIRECTED: Final = "delayed messages for a removed partition"


class Delays(Part):
    """The clients and the judge of delayed messages in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: DelayOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._faults = faults
        self.judge = Judge(cluster)
        self.judge.on_assigned = self._is_assigned
        self.judge.on_arrived = self._is_arrived
        self._clients = [
            DelayedClient(cluster, f"delays {number}", odds, self.judge) for number in range(odds.clients)
        ]
        self._probe = DelayedClient(cluster, "delays probe", odds, self.judge)

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Handle a group's commit index that has changed on a machine."""
        self.judge.committed(machine, group_id)

    def topics(self, config: Config) -> list[Topic]:
        """Return the topics of the run; ``__delayed`` is sometimes missing: its first user then
        creates it.
        """
        odds = self._odds
        more: Config = {"segment_bytes": LONG_SEGMENT} if odds.lowers_limit else {}
        topics = [Topic(REMINDERS, odds.targets, config | more), Topic(FLEETING, 1, config)]
        if odds.removes_partitions:
            topics.append(Topic(SHRINKING, SHRINKING_PARTITIONS, {"retention_ms": -1}))
        if odds.is_compacted:
            # How messages left is remembered for minutes, by tombstones that are kept for a day.
            often = {**OFTEN_COMPACTED, "delete_retention_ms": 86_400_000}
            topics.append(Topic(TOPIC, odds.coordinators, often))
        return topics

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return a topic, mostly of the scenario."""
        return rng.choice(self._odds.topics) if rng.random() < 0.8 else None

    def actors(self) -> list[Actor]:
        """Return the clients, and an administrator if the run removes partitions."""
        administrator = PartitionAdministrator(
            self._cluster,
            "of targets",
            Known(),
            topic=SHRINKING,
            partitions_max=SHRINKING_PARTITIONS,
            weights=WITHOUT_RETURN,
        )
        return [*self._clients, *([administrator] if self._odds.removes_partitions else [])]

    async def actors_ended(self) -> None:
        """Wait until all late requests have ended; then check that every message was delivered or has failed
        (D7).
        """
        for client in self._clients:
            while client.requests:
                await asyncio.wait(client.requests)
        for machine in self._cluster.machines:
            if not await self._probe.reaches(machine, RECOVERY_S):
                self._cluster.violated(IN_TIME, f"{machine.name} accepts no message")
        ended, deadline = -1, 0.0
        while (problem := self._problem()) is not None:
            before, ended = ended, sum(bool(known.outcome) for known in self.judge.known.values())
            if ended > before:  # many messages on a slow disk may take long, the next one may not
                deadline = self._cluster.loop.now + RECOVERY_S + self._odds.delay_ms_max / 1000
            if self._cluster.loop.now > deadline:
                self._cluster.violated(IN_TIME, problem)
                break
            await asyncio.sleep(0.25)
            self.judge.look()

    async def check(self) -> dict[str, int]:
        """Check that each answer agrees with a log. Returns counts that the run reports beside its faults."""
        self.judge.look()
        if self.judge.waiting:
            self._cluster.violated(IN_TIME, f"{len(self.judge.waiting)} checks are of what no log shows")
        return {
            LIMITED: sum(client.limits_lowered for client in self._clients),
            REDIRECTED: sum(known.redirections for known in self.judge.known.values()),
        }

    def _problem(self) -> str | None:
        for id_, known in self.judge.known.items():
            is_gone = known.message.topic == FLEETING and bool(known.failed)
            if not known.outcome and not is_gone:
                return f"{id_.hex()} is still pending: {known}"
            is_here = id_ in self.judge.arrived
            if known.outcome == "delivered" and known.message.topic != FLEETING and not is_here:
                return f"{id_.hex()} is in no partition: {known}"
        return None

    # Moments for faults.

    def _is_assigned(self, machine: Machine, target: Place) -> None:
        leader = self._leader(target)
        self._faults.aim(AFTER_AN_ASSIGNMENT, machine)
        if leader is not None:
            self._faults.aim(BEFORE_A_MOVE, leader)

    def _is_arrived(self, partition: int) -> None:
        coordinator = self._leader((TOPIC, partition))
        if coordinator is not None:
            self._faults.aim(AFTER_A_MOVE, coordinator)

    def _leader(self, place: Place) -> Machine | None:
        record = self.judge.records.get(place)
        if record is None:
            return None
        for machine in self._cluster.machines:
            group = None if machine.broker is None else machine.broker.host.groups.get(record.group_id)
            if group is not None and group.is_leader:
                return machine
        return None
