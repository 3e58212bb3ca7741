"""Brokers that the cluster was not created with: an operator lets them join, and their machines start.

Decides: which machine joins, and what must hold meanwhile. Checks that two committed memberships of the
metadata group that follow one another have no disjoint majorities (I36), and that a broker that joins votes
for nobody before a log has named it as a voter (I37). Leaves to others: all other checks of its replicas
(``checker``), and that the members are those that shall be in the end (``convergence``).
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Final

from chaos.simulator.machine import Machine
from chaos.simulator.records import GroupRecord, ReplicaRecord
from chaos.simulator.simulated_cluster import SimulatedCluster
from partitions.metadata.commands import AdmitBroker
from raftlog.core.membership import Membership
from raftlog.errors import RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import METADATA_GROUP, GroupId, NodeId

OVERLAP: Final = "I36 memberships that follow one another share a majority"
NO_EARLY_VOTE: Final = "I37 a joined broker votes once it is a voter"
TIMEOUT_MS: Final = 2000
AGAIN_S: Final = 0.3


class Joins:
    """One run's operator, and the checks. Does nothing in runs without ``odds.joins``."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._begun = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._named: set[NodeId] = {machine.node for machine in cluster.machines}
        self._checked: dict[int, Membership] = {}  # committed memberships of the metadata group, by index

    @property
    def may_join(self) -> bool:
        """Whether there is another broker to join."""
        odds = self._cluster.odds.joins
        return odds is not None and self._begun < odds.brokers

    def join(self, rng: random.Random) -> None:
        """Another broker joins. In some cases its request is repeated although it was carried out."""
        self._begun += 1
        number = self._cluster.odds.brokers + self._begun
        task = asyncio.get_running_loop().create_task(
            self._join(NodeId(number), random.Random(rng.random()), repeats=rng.random() < 0.3)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Return once all that were to join have started."""
        await asyncio.gather(*self._tasks)

    async def _join(self, node: NodeId, rng: random.Random, *, repeats: bool) -> None:
        request = AdmitBroker(f"{node:032x}", node, f"http://b{node}", "127.0.0.1", 9000 + node)
        while True:
            machine = rng.choice(self._cluster.machines)
            try:
                broker = await machine.call(
                    lambda broker: broker.controller.admit_broker(request, TIMEOUT_MS)
                )
            except RaftlogError:
                await asyncio.sleep(AGAIN_S)
                continue
            if broker.broker_id != node:
                self._cluster.violated("I36 a broker joins under its id", f"{node} became {broker.broker_id}")
            if not repeats:
                break
            repeats = False
        machine = self._machine(node)
        if not machine.is_up:
            machine.start()

    def _machine(self, node: NodeId) -> Machine:
        """Machines stand in the order of their numbers, also where a later one was let in first."""
        machines = self._cluster.machines
        while len(machines) < node:
            self._cluster.add_machine(NodeId(len(machines) + 1))
        return machines[node - 1]

    # Checks.

    def voted(self, machine: Machine, group: GroupId, candidate: NodeId) -> None:
        """A vote leaves: for itself, or for another candidate."""
        if group == METADATA_GROUP and machine.node not in self._named:
            detail = f"{machine.name} votes for {candidate}, and no log names it as a voter"
            self._cluster.violated(NO_EARLY_VOTE, detail)

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """A replica has changed."""
        if record.group_id != METADATA_GROUP:
            return
        self._named |= group.membership.all_voters
        memberships = group._core.memberships
        if memberships.newest.index in self._checked or memberships.newest.index > group.commit_index:
            return
        known = [each for each in memberships._entries if each.membership.voters]
        for earlier, later in pairwise(known):
            self._checked[earlier.index] = earlier.membership
            if later.index <= group.commit_index and not share_majorities(
                earlier.membership, later.membership
            ):
                detail = f"{earlier.membership} at {earlier.index}, {later.membership} at {later.index}"
                self._cluster.violated(OVERLAP, detail)
        self._checked[memberships.newest.index] = memberships.newest.membership


def share_majorities(one: Membership, other: Membership) -> bool:
    """Whether every quorum of one has a member in every quorum of the other.

    A quorum of a joint membership has a majority of each half: one half that overlaps is enough.
    """
    return any(_overlap(half, other_half) for half in one.halves for other_half in other.halves)


def _overlap(one: frozenset[NodeId], other: frozenset[NodeId]) -> bool:
    shared = len(one & other)
    needed = max(0, len(one) // 2 + 1 - (len(one) - shared))
    other_needed = max(0, len(other) // 2 + 1 - (len(other) - shared))
    return needed + other_needed > shared
