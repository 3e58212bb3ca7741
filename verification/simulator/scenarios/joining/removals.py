"""An operator who removes decommissioned brokers permanently, and removed brokers whose processes start
again.

Decides: which broker is removed, when its machine stops, and whether it starts again. Checks that a removed
broker holds no replica and stays removed (I42), and at the end that its process is kept out and knows that it
was removed (L14). Leaves to others: decommissioning brokers (``decommissions``), and the agreement of all
other brokers (``convergence``).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from broker.broker import Broker
from partitions.metadata.commands import AdmitBroker, ForgetBroker
from partitions.metadata.image import MetadataImage
from raftlog.errors import RaftlogError
from raftlog.types import METADATA_GROUP, NodeId
from verification.simulator.machine import Machine
from verification.simulator.scenarios.healing.part import Healing
from verification.simulator.simulated_cluster import SimulatedCluster

REMOVED: Final = "I42 a removed broker holds nothing and stays removed"
KEPT_OUT: Final = "L14 a process of a removed broker is kept out"
TIMEOUT_MS: Final = 2000
AGAIN_S: Final = 0.3
EMPTY_S: Final = 8.0  # until a broker holds nothing; then it is not removed
KEPT_OUT_S: Final = 10.0
ATTEMPTS: Final = 20  # to remove a broker that is off; then it starts again


class Removals:
    """The operator of one run who removes brokers, and the checks of removals."""

    def __init__(self, cluster: SimulatedCluster, counts: Counter[str]) -> None:
        self._cluster = cluster
        self._counts = counts
        self._begun: set[NodeId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._removed_at: dict[NodeId, int] = {}  # the lowest version of metadata that show it as removed

    @property
    def candidates(self) -> list[NodeId]:
        """The brokers that may be removed now."""
        healing = self._cluster.part(Healing)
        return [] if healing is None else sorted(healing.decommissions.chosen - self._begun)

    def remove(self, rng: random.Random) -> None:
        """Remove a candidate, either while it runs, or after it holds no replica and is stopped."""
        node = rng.choice(self.candidates)
        self._begun.add(node)
        rng = random.Random(rng.random())
        is_patient = rng.random() < 0.8
        remove = self._remove if is_patient else self._remove_in_a_hurry
        task = asyncio.get_running_loop().create_task(remove(self._cluster.machines[node - 1], rng))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Return once all requests for removals are answered."""
        await asyncio.gather(*self._tasks)

    async def _remove(self, machine: Machine, rng: random.Random) -> None:
        if not await self._is_empty(machine.node):
            self._begun.discard(machine.node)
            return
        machine.is_kept_off = True
        rng.choice((machine.kill, machine.stop))()
        for _ in range(ATTEMPTS):
            if machine.is_removed or self._cluster.is_healed:
                break
            await asyncio.sleep(AGAIN_S)
            requests = (self._request(machine.node, rng) for _ in range(rng.choice((1, 1, 2))))
            await asyncio.gather(*requests)
        if machine.is_removed:
            await self._misuse_id(machine.node, rng)
        if not machine.is_removed or rng.random() < 0.7:
            machine.is_kept_off = False
            if not machine.is_up:
                machine.start()

    async def _remove_in_a_hurry(self, machine: Machine, rng: random.Random) -> None:
        """Request the removal of a broker that still runs. The request may be refused; otherwise the broker
        learns of its removal later.
        """
        await self._request(machine.node, rng)
        if not machine.is_removed:
            self._begun.discard(machine.node)

    async def _is_empty(self, node: NodeId) -> bool:
        """Wait for a while until the broker holds no replica and is no voter; return whether this
        happened.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EMPTY_S
        while loop.time() < deadline and not self._cluster.is_healed:
            for machine in self._cluster.machines:
                broker = machine.broker
                group = None if broker is None else broker.host.groups.get(METADATA_GROUP)
                if broker is None or group is None or not group.is_ready:
                    continue
                image = broker.controller.image
                known = image.brokers.get(node)
                is_leaving = known is not None and known.decommissioned and not image.replicas_on(node)
                if is_leaving and node not in group.membership.all_voters:
                    return True
            await asyncio.sleep(AGAIN_S)
        return False

    async def _request(self, node: NodeId, rng: random.Random) -> None:
        await self._ask(
            rng, node, lambda broker: broker.controller.change_broker(ForgetBroker(node), TIMEOUT_MS)
        )

    async def _misuse_id(self, node: NodeId, rng: random.Random) -> None:
        """Repeat the request that admitted the removed broker, and request its id for another broker: both
        must be refused.
        """
        for admission in (f"{node:032x}", f"{node:031x}f"):
            request = AdmitBroker(admission, node, f"http://b{node}", "127.0.0.1", 9000 + node, replaces=True)
            admitted = await self._ask(rng, node, partial(_admit, request=request))
            if admitted:
                self._cluster.violated(REMOVED, f"the id {node} was given again")

    async def _ask(
        self, rng: random.Random, node: NodeId, ask: Callable[[Broker], Awaitable[object]]
    ) -> bool:
        """Send a request about a broker to any other broker; return whether it was carried out."""
        others = [machine for machine in self._cluster.machines if machine.node != node]
        try:
            await rng.choice(others).call(ask)
        except RaftlogError:
            return False
        return True

    # Checks.

    def shown(self, image: MetadataImage) -> None:
        """Check that removed brokers stay removed in new metadata, and hold no replicas."""
        for node in image.forgotten:
            if node not in self._removed_at:
                self._removed_at[node] = image.version
                self._counts["removed"] += 1
                self._cluster.machines[node - 1].is_removed = True
            self._removed_at[node] = min(self._removed_at[node], image.version)
            if image.replicas_on(node):
                self._cluster.violated(REMOVED, f"broker {node} was removed and holds replicas")
        for node, version in self._removed_at.items():
            is_back = node in image.brokers or node not in image.forgotten
            if is_back and image.version >= version:
                self._cluster.violated(REMOVED, f"broker {node} is there again at {image.version}")

    async def kept_out(self) -> None:
        """Check after healing that each running removed broker knows of its removal, and that no other broker
        hears it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + KEPT_OUT_S
        problems = [*self._problems()]
        while problems and loop.time() < deadline:
            await asyncio.sleep(AGAIN_S)
            problems = [*self._problems()]
        for problem in problems:
            self._cluster.violated(KEPT_OUT, problem)

    def _problems(self) -> Iterator[str]:
        """Describe removed brokers that do not know of their removal, or that other brokers still hear."""
        for machine in self._cluster.machines:
            if machine.broker is None:
                continue
            if machine.is_removed:
                if not machine.broker.controller.registration.why_removed:
                    yield f"{machine.name} was removed and does not know it"
                continue
            heard = machine.broker.host.reachable_peers & self._removed_at.keys()
            if heard:
                yield f"{machine.name} hears {sorted(heard)}, which were removed"


async def _admit(broker: Broker, request: AdmitBroker) -> None:
    await broker.controller.admit_broker(request, TIMEOUT_MS)
