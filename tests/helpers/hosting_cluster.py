"""Brokers that host a counter, in virtual time: real hosts, supervisors, repair and logs; disks in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from raftlog.hosting.hosted_replica import HostedState
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.retention import RetentionManager
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.group_host import GroupHost
from raftlog.repair.repairer import Repairer
from raftlog.repair.service import RepairService
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.counter import GROUP, Counter
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock

Result = TypeVar("Result")


async def _at_once(work: Callable[[], Result]) -> Result:
    return work()


class HostingNode:
    """One broker, in one incarnation of its process, with a counter."""

    def __init__(
        self,
        node_id: NodeId,
        brokers: Sequence[NodeId],
        network: LoopNetwork,
        disk: FakeFilesystem,
        life: int,
    ) -> None:
        self.disk = disk
        self.fatal: list[BaseException] = []
        self.has_room = True
        self.transport = network.member(node_id, brokers)
        rng = random.Random(f"{node_id} {life}")
        self.host = GroupHost(
            node_id,
            self.transport,
            VirtualClock(),
            rng,
            self._run_syncs,
            on_fatal=self.fatal.append,
            has_room=lambda: self.has_room,
        )
        registry = ReplicaRegistry.open(disk, "/data", rng)
        broken = BrokenGroups(disk, "/data", self.host.clock)
        service = RepairService(self.host, disk, _at_once, lambda group: self.supervisor.directory_of(group))
        repairer = Repairer(self.host, disk, _at_once, service)
        self.supervisor = Supervisor(self.host, registry, broken, repairer=repairer, run_blocking=_at_once)
        self.retention = RetentionManager(self.host, self.supervisor.serving_tenants)
        self.counter = Counter(self.host, LogOpener(disk, "/data", self.host.clock, registry), brokers)
        service.offer()

    @property
    def state(self) -> HostedState | None:
        """The state of the counter here."""
        return self.supervisor.state_of(GROUP)

    @property
    def leads(self) -> bool:
        """Whether the counter's leader is here, and ready."""
        return self.counter.group is not None and self.counter.group.is_ready

    async def start(self) -> None:
        """Host the counter; it may take a while to serve."""
        await self.host.start()
        self.supervisor.host(self.counter)
        await self.supervisor.start()

    async def stop(self) -> None:
        """A clean stop."""
        await self.supervisor.stop()
        await self.host.stop()
        assert self.fatal == []

    async def _run_syncs(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        await asyncio.sleep(0.001)
        return [_error_of(sync) for sync in syncs]


class HostingCluster:
    """Make it inside ``run_virtual`` and use it with ``async with``."""

    def __init__(self, brokers: int = 3) -> None:
        self.nodes = [NodeId(number) for number in range(1, brokers + 1)]
        self.network = LoopNetwork(random.Random(brokers))
        self.disks = {node: FakeFilesystem() for node in self.nodes}
        self.brokers: dict[NodeId, HostingNode] = {}
        self._lives = 0

    def __iter__(self) -> Iterator[HostingNode]:
        return iter(self.brokers.values())

    async def __aenter__(self) -> HostingCluster:
        for node in self.nodes:
            await self.start(node)
        await self.until(lambda: self.leader is not None)
        return self

    async def __aexit__(self, *error: object) -> None:
        for node in list(self.brokers):
            await self.stop(node)

    async def start(self, node: NodeId) -> HostingNode:
        """The next incarnation on the same disk."""
        self._lives += 1
        broker = HostingNode(node, self.nodes, self.network, self.disks[node], self._lives)
        self.brokers[node] = broker
        await broker.start()
        return broker

    async def stop(self, node: NodeId) -> None:
        """End its process cleanly."""
        await self.brokers.pop(node).stop()

    @property
    def leader(self) -> HostingNode | None:
        """The broker that leads in the newest term."""
        ready = [broker for broker in self if broker.leads]
        return max(ready, key=_term, default=None)

    @property
    def leading(self) -> HostingNode:
        """The leader, which must be there."""
        assert self.leader is not None
        return self.leader

    @property
    def followers(self) -> list[HostingNode]:
        """All brokers but the leader."""
        return [broker for broker in self if broker is not self.leading]

    async def until(self, holds: Callable[[], bool], within_s: float = 60.0) -> None:
        """Return once the condition is met, in virtual time."""
        deadline = asyncio.get_running_loop().time() + within_s
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, [broker.state for broker in self]
            await asyncio.sleep(0.01)


def _term(broker: HostingNode) -> int:
    return 0 if broker.counter.group is None else broker.counter.group.term


def _error_of(sync: DiskWork) -> OSError | None:
    try:
        sync.run()
    except OSError as error:
        return error
    return None
