"""An operator who decommissions brokers while other brokers die, and recommissions some of them.

Decides: which broker is decommissioned, so that the others can hold all replicas even after the deaths that
the run permits. Leaves to others: deaths, and the check at the end that each partition has its full number of
replicas (``deaths``).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final

from partitions.metadata.commands import DecommissionBroker
from partitions.metadata.image import MetadataImage
from raftlog.errors import RaftlogError
from raftlog.types import NodeId
from verification.simulator.scenarios.healing.odds import HealingOdds
from verification.simulator.simulated_cluster import SimulatedCluster

MIND_S: Final = (0.2, 1.0, 3.0, 8.0)  # until it is used again
TIMEOUT_MS: Final = 2000


class Decommissions:
    """The operator of one run who decommissions brokers."""

    def __init__(self, cluster: SimulatedCluster, odds: HealingOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._chosen: set[NodeId] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def candidates(self) -> list[NodeId]:
        """The brokers that may be decommissioned now."""
        machines = self._cluster.machines
        spare = len(machines) - self._odds.dead_for_good - len(self._chosen) - 1
        if spare < self._cluster.odds.replicas:
            return []
        return [
            machine.node for machine in machines if not machine.is_gone and machine.node not in self._chosen
        ]

    @property
    def chosen(self) -> frozenset[NodeId]:
        """The brokers that are decommissioned, or are about to be decommissioned."""
        return frozenset(self._chosen)

    def decommission(self, rng: random.Random) -> None:
        """Decommission a candidate; in half of the cases, recommission it after a while."""
        broker = rng.choice(self.candidates)
        self._chosen.add(broker)
        after_s = rng.choice(MIND_S) if rng.random() < 0.5 else None
        task = asyncio.get_running_loop().create_task(self._decommission(broker, after_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decommission(self, broker: NodeId, after_s: float | None) -> None:
        await self._ask(DecommissionBroker(broker))
        if after_s is not None:
            await asyncio.sleep(after_s)
            if await self._ask(DecommissionBroker(broker, decommissioned=False)):
                self._chosen.discard(broker)

    async def _ask(self, request: DecommissionBroker) -> bool:
        """Send the request to a running broker; return whether it succeeded. After False it may still be
        carried out.
        """
        for machine in self._cluster.machines:
            if machine.broker is not None and machine.node != request.broker_id:
                with contextlib.suppress(RaftlogError):
                    await machine.call(lambda broker: broker.controller.change_broker(request, TIMEOUT_MS))
                    return True
                return False
        return False

    def problems(self, image: MetadataImage) -> list[str]:
        """Describe each decommissioned broker that still holds replicas."""
        return [
            f"broker {broker.broker_id} is decommissioned and has {left} replicas"
            for broker in image.brokers.values()
            if broker.decommissioned and (left := image.replicas_on(broker.broker_id))
        ]
