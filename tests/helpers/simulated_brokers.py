"""Brokers of one process: real hosts, supervisors and logs; network, disks and time are simulated.

Decides: how a broker starts, syncs and stops; a ``HostingCluster`` hosts a counter. Leaves to others: brokers
with metadata and partitions (``controlled_cluster``). Tests use it in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from raftlog.hosting.compaction import CompactionManager
from raftlog.hosting.hosted_replica import HostedState
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.progress_keeper import ProgressKeeper
from raftlog.hosting.retention import RetentionManager
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.repair.repairer import Repairer
from raftlog.repair.service import RepairService
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.replica_progress import ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import NodeId
from tests.helpers.counter import GROUP, Counter
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock, eventually

SYNC_S = 0.001


@dataclass(frozen=True)
class Place:
    """Where a broker runs, in one incarnation of its process. The cluster began with ``nodes``."""

    node_id: NodeId
    nodes: Sequence[NodeId]
    network: LoopNetwork
    filesystem: Filesystem
    life: int


class SimulatedBroker(ABC):
    """One broker, in one incarnation of its process, on ``directory``."""

    def __init__(
        self, place: Place, directory: str, settings: HostSettings | None = None, *, repairs: bool
    ) -> None:
        self.node_id = place.node_id
        self.directory = directory
        self.filesystem = place.filesystem
        self.clock = VirtualClock()
        self.fatal: list[BaseException] = []
        self.has_room = self.has_reserve = True
        self.disk = asyncio.Event()  # set while syncs may end
        self.disk.set()
        self.transport = place.network.member(place.node_id, place.nodes)
        self.host = GroupHost(
            place.node_id,
            self.transport,
            self.clock,
            random.Random(1000 * place.node_id + place.life),
            in_a_task(self._run_syncs),
            on_fatal=self.fatal.append,
            has_room=lambda: self.has_room,
            is_in_use=self.is_in_use,
            settings=settings,
        )
        self.host.duties.on_failed = lambda duty, error: self.fatal.append(error)
        rng = random.Random(f"disk {place.node_id} {place.life}")
        self.registry = ReplicaRegistry.open(self.filesystem, directory, rng)
        self.broken = BrokenGroups(self.filesystem, directory, self.clock)
        self.logs = LogOpener(
            self.filesystem,
            directory,
            self.clock,
            self.registry,
            ReplicaProgress.open(self.filesystem, directory),
        )
        self.progress = ProgressKeeper(self.host, self.logs.progress, self.registry, asyncio.to_thread)
        repairer = self._repairer() if repairs else None
        self.supervisor = Supervisor(self.host, self.registry, self.broken, repairer=repairer)
        tenants = self.supervisor.serving_tenants
        self.retention = RetentionManager(self.host, tenants)
        self.compaction = CompactionManager(self.host, self.filesystem, asyncio.to_thread, tenants, 0)

    def _repairer(self) -> Repairer:
        service = RepairService(
            self.host, self.filesystem, asyncio.to_thread, lambda group: self.supervisor.directory_of(group)
        )
        service.offer()
        return Repairer(self.host, self.filesystem, asyncio.to_thread, service)

    def is_in_use(self, peer: NodeId) -> bool:
        """Whether a peer counts for the majority that agrees on the time."""
        return True

    @abstractmethod
    async def start(self) -> None:
        """Host what it hosts."""

    async def stop(self) -> None:
        """A clean stop."""
        await self.supervisor.stop()
        # a host with failed syncs does not sync any more, so it closes no group
        assert self.fatal == [], self.fatal
        await self.host.stop()
        assert self.fatal == []

    async def _run_syncs(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        await asyncio.sleep(SYNC_S)
        await self.disk.wait()
        return [_error_of(sync) for sync in syncs]


def _error_of(sync: DiskWork) -> OSError | None:
    try:
        sync.run()
    except OSError as error:
        return error
    return None


BrokerT = TypeVar("BrokerT", bound=SimulatedBroker)


class SimulatedBrokers(ABC, Generic[BrokerT]):
    """Brokers that know each other, with a disk each; use it with ``async with``."""

    def __init__(self, disks: Mapping[NodeId, Filesystem]) -> None:
        self.nodes = list(disks)
        self.network = LoopNetwork(random.Random(len(disks)))
        self.brokers: dict[NodeId, BrokerT] = {}
        self.disks = disks
        self._lives = 0

    @abstractmethod
    def new(self, place: Place) -> BrokerT:
        """A broker that has not started."""

    @abstractmethod
    async def ready(self) -> None:
        """Return once all brokers that have started work together."""

    def __iter__(self) -> Iterator[BrokerT]:
        return iter(self.brokers.values())

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            await self.start(node)
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self:
            broker.disk.set()  # a failed test may have left syncs waiting, and a stop waits for them
        for node in list(self.brokers):
            await self.stop(node)

    async def start(self, node: NodeId, filesystem: Filesystem | None = None) -> BrokerT:
        """The next incarnation of a broker, by default on its disk."""
        self._lives += 1
        place = Place(node, self.nodes, self.network, filesystem or self.disks[node], self._lives)
        broker = self.brokers[node] = self.new(place)
        await broker.start()
        return broker

    async def stop(self, node: NodeId) -> None:
        """End a broker's incarnation."""
        await self.brokers.pop(node).stop()


class HostingNode(SimulatedBroker):
    """One broker, in one incarnation of its process, with a counter."""

    def __init__(self, place: Place, files: FakeFilesystem) -> None:
        super().__init__(place, "/data", repairs=True)
        self.files = files
        self.counter = Counter(self.host, self.logs, place.nodes)

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


class HostingCluster(SimulatedBrokers[HostingNode]):
    """Brokers with a replica of the counter each."""

    def __init__(self, brokers: int = 3) -> None:
        self.files = {NodeId(number): FakeFilesystem() for number in range(1, brokers + 1)}
        super().__init__(self.files)

    def new(self, place: Place) -> HostingNode:
        return HostingNode(place, self.files[place.node_id])

    async def ready(self) -> None:
        await self.until(lambda: self.leader is not None)

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

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once the condition is met."""
        await eventually(holds, within_s=60.0)


def _term(broker: HostingNode) -> int:
    return 0 if broker.counter.group is None else broker.counter.group.term
