"""Runs an administrator who requests balancing, and checks all moves of replicas.

Decides: which plans are requested, carried out late or twice, or cancelled. Checks that a group never has
fewer voters than its topic has replicas, that no broker has two replicas of a partition (I40), that one plan
ends before another begins (I41), and at the end that no replica moves any more and the numbers of replicas
per broker differ by at most one (L13). Leaves to others: deaths, and that each partition has its replicas
(``deaths``).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

from partitions.metadata.balancing import PlanProposal
from partitions.metadata.commands import EndPlan, StartPlan
from partitions.metadata.image import MetadataImage
from raftlog.errors import RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId, NodeId
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.part import Part, Timed
from verification.simulator.records import GroupRecord, ReplicaRecord
from verification.simulator.scenarios.balancing.odds import PLAN, BalanceOdds
from verification.simulator.simulated_cluster import SimulatedCluster

VOTERS: Final = "I40 a partition keeps its number of voters"
ONE_PLAN: Final = "I41 one plan at a time"
BALANCED: Final = "L13 brokers are balanced in the end"
BALANCED_S: Final = 120.0
TIMEOUT_MS: Final = 2000
LATE_S: Final = (0.0, 0.0, 1.0, 5.0)  # between a plan and its execution
CANCELLED_S: Final = (0.1, 1.0, 3.0)


class Balancing(Part):
    """The administrator who requests balancing in one run, and the checks."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: BalanceOdds) -> None:
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        self._factors: dict[GroupId, int] = {}
        self._newest = MetadataImage()

    # The administrator.

    def faults(self) -> dict[str, Timed]:
        """Return the fault of the scenario: an administrator requests balancing."""
        return {PLAN: self._begin_plan}

    def _begin_plan(self, rng: random.Random) -> None:
        """Request a plan and carry it out, perhaps late or twice; perhaps cancel it."""
        task = asyncio.get_running_loop().create_task(self._plan(random.Random(rng.random())))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _plan(self, rng: random.Random) -> None:
        with contextlib.suppress(RaftlogError):
            proposal = await self._any(rng).call(lambda broker: broker.controller.propose_plan(TIMEOUT_MS))
            await asyncio.sleep(rng.choice(LATE_S))
            for _ in range(rng.choice((1, 1, 2))):
                await self._start(rng, proposal)
            if rng.random() < 0.3:
                await asyncio.sleep(rng.choice(CANCELLED_S))
                await self._cancel(rng)

    async def _start(self, rng: random.Random, proposal: PlanProposal) -> None:
        request = StartPlan(proposal.moves, proposal.made_at)
        with contextlib.suppress(RaftlogError):
            await self._any(rng).call(lambda broker: broker.controller.change_plan(request, TIMEOUT_MS))

    async def _cancel(self, rng: random.Random) -> None:
        plan = self._newest.plan
        if plan is not None:
            request = EndPlan(plan.version)
            await self._any(rng).call(lambda broker: broker.controller.change_plan(request, TIMEOUT_MS))

    def _any(self, rng: random.Random) -> Machine:
        machines = self._cluster.machines
        return rng.choice([machine for machine in machines if machine.broker is not None] or machines)

    # Checks.

    def shown(self, image: MetadataImage) -> None:
        """Check the moves in metadata that a broker has applied."""
        if image.version <= self._newest.version:
            return
        earlier, self._newest = self._newest.plan, image
        if earlier is not None and image.plan is not None and image.plan.version != earlier.version:
            self._cluster.violated(ONE_PLAN, f"plan {image.plan.version} replaces plan {earlier.version}")
        for topic in image.topics.values():
            for partition in topic.partitions:
                self._factors[partition.group_id] = topic.replication_factor
                row = partition.target_replicas
                if len({*row}) != len(row) or len(row) < topic.replication_factor:
                    detail = f"{topic.name}/{partition.partition} shall be on {list(row)}"
                    self._cluster.violated(VOTERS, detail)

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """Check a replica whose files or numbers have changed."""
        factor = self._factors.get(record.group_id, 0)
        few = [sorted(half) for half in group.membership.halves if len(half) < factor]
        if few and group.membership.members:
            detail = f"group {record.group_id} has voters {few[0]} of {factor} replicas"
            self._cluster.violated(VOTERS, detail)

    async def faults_ended(self) -> None:
        """Wait until no replica moves. If the cluster balances itself, also wait until the numbers of
        replicas per broker differ by at most one.
        """
        deadline = self._cluster.loop.now + BALANCED_S
        problems = list(self._problems())
        while problems and self._cluster.loop.now < deadline:
            await asyncio.sleep(0.25)
            problems = list(self._problems())
        for problem in problems:
            self._cluster.violated(BALANCED, problem)

    def _problems(self) -> Iterator[str]:
        image = self._newest
        if image.plan is not None:
            yield f"plan {image.plan.version} has not ended"
        rows = [partition for topic in image.topics.values() for partition in topic.partitions]
        moving = [partition.partition for partition in rows if partition.target]
        if moving:
            yield f"partitions {moving} move"
        if not self._cluster.odds.settings.balancing_moves_max:
            return
        replicas: Counter[NodeId] = Counter(node for each in rows for node in each.target_replicas)
        in_use = [node for node in image.brokers if image.is_in_use(node)]
        counts = {node: replicas[node] for node in in_use}
        if max(counts.values()) - min(counts.values()) > 1:
            yield f"brokers have {counts} replicas"
