"""Brokers that join an existing cluster: an operator admits them, and their machines start.

Decides: which machine joins. Leaves to others: the checks of memberships (``memberships``) and of the new
broker's replicas (``checker``), and the check of the members at the end (``convergence``).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from partitions.metadata.commands import AdmitBroker
from raftlog.errors import RaftlogError
from raftlog.types import NodeId
from verification.simulator.machine import Machine
from verification.simulator.scenarios.joining.odds import JoinOdds
from verification.simulator.simulated_cluster import SimulatedCluster

TIMEOUT_MS: Final = 2000
AGAIN_S: Final = 0.3


class Joins:
    """The operator of one run who admits brokers."""

    def __init__(self, cluster: SimulatedCluster, odds: JoinOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._begun = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def may_join(self) -> bool:
        """Return whether the run still has a broker that may join."""
        return self._begun < self._odds.brokers

    def join(self, rng: random.Random) -> None:
        """Admit another broker. In some cases the request is repeated although it was carried out."""
        self._begun += 1
        number = self._cluster.odds.brokers + self._begun
        task = asyncio.get_running_loop().create_task(
            self._join(NodeId(number), random.Random(rng.random()), repeats=rng.random() < 0.3)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Return once all joining brokers have started."""
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
        """Return the machine of a broker; create it and the machines before it if necessary.

        Machines are in the order of their numbers, even if a broker with a higher number was admitted first.
        """
        machines = self._cluster.machines
        while len(machines) < node:
            self._cluster.add_machine(NodeId(len(machines) + 1))
        return machines[node - 1]
