"""Brokers of one process: real hosts, controllers, managers and gateways, in memory or in a directory.

Network, disk and time are simulated; use it ``in_virtual_time``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from partitions.hosting.hosted_metadata import HostedMetadata
from partitions.hosting.replica_manager import ReplicaManager
from partitions.metadata.active import ControllerSettings
from partitions.metadata.commands import RegisterBroker
from partitions.metadata.image import TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.service import Controller
from partitions.metadata.source import MetadataSource
from partitions.reassignment.admin import PartitionAdmin
from partitions.reassignment.reassigner import Reassigner
from partitions.replica.replica import PartitionReplica
from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, Acks, AppendReceipt
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.retention import RetentionManager
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock, eventually

SETTINGS = HostSettings(tick_ms=4, heartbeat_ticks=3, election_ticks=12, quiet_ticks=1000)
SYNC_S = 0.001
PRODUCER_IDS = ProducerIdCipher(b"of a cluster for tests")
NUMBER = 7
PRODUCER = PRODUCER_IDS.id_of(NUMBER)  # a ``PartitionCluster`` has allocated it
CONTROLLER = ControllerSettings(
    cluster_id="c" * 32, dead_timeout_ms=300, duty_interval_ms=20, retry_pause_ms=5, attempt_timeout_ms=500
)


def hosting(
    host: GroupHost,
    metadata: MetadataSource,
    filesystem: Filesystem,
    directory: str,
    registry: ReplicaRegistry,
) -> tuple[Supervisor, ReplicaManager]:
    """The part that opens and closes the replicas of one broker, in ``directory``."""
    broken = BrokenGroups(filesystem, directory, host.clock)
    logs = LogOpener(filesystem, directory, host.clock, registry)
    supervisor = Supervisor(host, registry, broken)
    return supervisor, ReplicaManager(host, metadata, supervisor, logs, broken, producer_ids=PRODUCER_IDS)


def _registration(node_id: NodeId, life: int, rack: str | None, disk_id: str) -> RegisterBroker:
    url = f"http://127.0.0.1:{7000 + node_id}"
    return RegisterBroker(node_id, f"life-{life}", url, "127.0.0.1", 9000 + node_id, rack, disk_id)


class ControlledBroker:
    """One broker, in one incarnation of its process, on ``<directory>/broker-<id>``."""

    def __init__(
        self,
        node_id: NodeId,
        network: LoopNetwork,
        directory: str,
        voters: frozenset[NodeId],
        life: int,
        *,
        rack: str | None = None,
        filesystem: Filesystem,
    ) -> None:
        self.node_id = node_id
        self.directory = f"{directory}/broker-{node_id}"
        self.filesystem = filesystem
        self.clock = VirtualClock()
        self.fatal: list[BaseException] = []
        self.disk = asyncio.Event()  # set while syncs may end
        self.disk.set()
        self.host = GroupHost(
            node_id,
            network.member(node_id, voters),
            self.clock,
            random.Random(1000 * node_id + life),
            self._run_syncs,
            on_fatal=self.fatal.append,
            settings=SETTINGS,
        )
        registry = ReplicaRegistry.open(
            self.filesystem, self.directory, random.Random(f"disk {node_id} {life}")
        )
        registration = _registration(node_id, life, rack, registry.disk_id)
        rng = random.Random(f"ids {node_id} {life}")
        self.controller = Controller(self.host, voters, registration, CONTROLLER, rng)
        self.supervisor, self.manager = hosting(
            self.host, self.controller, self.filesystem, self.directory, registry
        )
        self.retention = RetentionManager(self.host, self.supervisor.serving_tenants)
        self.metadata = HostedMetadata(
            self.controller,
            self._begins,
            LogOpener(self.filesystem, self.directory, self.host.clock, registry),
            asyncio.to_thread,
            f"{self.directory}/__metadata",
            tuple(voters - {node_id}),
        )
        self.why_offline = "it is not open"
        self.gateway = Gateway(
            node_id,
            lambda: self.controller.image,
            self.manager.replicas,
            self.host.calls,
            why_offline=lambda target: self.why_offline,
        )
        self.admin = PartitionAdmin(self.host, self.controller, self.gateway, self.host.clock)
        self.reassigner = Reassigner(self.host, self.controller, self.manager.replicas)

    async def start(self) -> None:
        """Join the cluster."""
        await self.host.start()
        self.supervisor.host(self.metadata)
        await self.supervisor.start()
        await self.supervisor.serving(METADATA_GROUP)
        await self.manager.start()
        await self.reassigner.start()

    async def stop(self) -> None:
        """A clean stop."""
        await self.reassigner.stop()
        await self.manager.stop()
        await self.supervisor.stop()
        await self.controller.stop()
        # a host with failed syncs does not sync any more, so it closes no group
        assert self.fatal == [], self.fatal
        await self.host.stop()
        assert self.fatal == []

    async def _begins(self) -> bool:
        """The cluster starts with these brokers."""
        return False

    async def _run_syncs(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        await asyncio.sleep(SYNC_S)
        await self.disk.wait()
        return [self._run(sync) for sync in syncs]

    def _run(self, sync: DiskWork) -> OSError | None:
        try:
            sync.run()
        except OSError as error:
            return error
        return None


class ControlledCluster:
    """Brokers 1, 2, 3, ...; use it with ``async with``. Without a directory their disks are in memory."""

    def __init__(self, directory: str | None = None, brokers: int = 3, *, racks: Sequence[str] = ()) -> None:
        self.network = LoopNetwork(random.Random(brokers))
        self.directory = directory or "/data"
        self.nodes = [NodeId(number) for number in range(1, brokers + 1)]
        self.racks = {node: racks[at] if racks else None for at, node in enumerate(self.nodes)}
        self.brokers: dict[NodeId, ControlledBroker] = {}
        self._disks: dict[NodeId, Filesystem] = {
            node: FakeFilesystem() if directory is None else UnsyncedFilesystem() for node in self.nodes
        }
        self._lives = 0

    async def __aenter__(self) -> Self:
        for node in self.nodes:
            await self.start(node)
        await self.registered()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.disk.set()  # a failed test may have left syncs waiting, and a stop waits for them
        for node in list(self.brokers):
            await self.stop(node)

    async def start(self, node: NodeId, filesystem: Filesystem | None = None) -> ControlledBroker:
        """The next incarnation of a broker."""
        self._lives += 1
        broker = ControlledBroker(
            node,
            self.network,
            self.directory,
            frozenset(self.nodes),
            self._lives,
            rack=self.racks[node],
            filesystem=filesystem or self._disks[node],
        )
        self.brokers[node] = broker
        await broker.start()
        return broker

    async def stop(self, node: NodeId) -> None:
        """End a broker's incarnation."""
        await self.brokers.pop(node).stop()

    async def registered(self) -> None:
        """Return once every broker sees every running broker, alive, in its current incarnation."""
        await eventually(lambda: all(broker.controller.is_registered for broker in self.brokers.values()))
        version = max(broker.controller.image.version for broker in self.brokers.values())
        for broker in self.brokers.values():
            await broker.controller.wait_for_version(version, 5000)

    @property
    def any(self) -> ControlledBroker:
        return next(iter(self.brokers.values()))

    async def controller_broker(self) -> ControlledBroker:
        """The broker with the active controller."""

        def leader() -> ControlledBroker | None:
            for broker in self.brokers.values():
                group = broker.host.groups.get(METADATA_GROUP)
                if group is not None and group.is_ready:
                    return broker
            return None

        await eventually(lambda: leader() is not None)
        found = leader()
        assert found is not None
        return found

    async def create(self, name: str, partitions: int = 1, factor: int = 3, **config: int | str) -> TopicInfo:
        """Create a topic and wait until every broker has opened its replicas."""
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        return await self.create_with(name, partitions, factor, dotted)

    async def create_with(
        self, name: str, partitions: int, factor: int, config: Mapping[str, int | str]
    ) -> TopicInfo:
        """The same with the names of settings as they are."""
        topic = await self.any.controller.create_topic(
            name, partitions=partitions, replication_factor=factor, config=config, timeout_ms=5000
        )
        await self.settled(topic.version)
        return topic

    async def settled(self, version: int) -> None:
        """Return once every broker's replicas are those of metadata of this version."""
        async with asyncio.timeout(10):
            for broker in self.brokers.values():
                await broker.controller.wait_for_version(version, 5000)
                await broker.manager.settled()

    def replica(self, node: NodeId) -> PartitionReplica:
        """A broker's replica of ``orders``."""
        return self.brokers[node].manager.replicas["orders", 0]

    async def leader(self, *, other_than: NodeId | None = None) -> ControlledBroker:
        """The broker that leads ``orders`` and is ready, once there is one."""
        found: list[ControlledBroker] = []

        def has_leader() -> bool:
            found[:] = [
                broker
                for node, broker in self.brokers.items()
                if node != other_than
                and (replica := broker.manager.replicas.get(("orders", 0))) is not None
                and replica.group.is_ready
            ]
            return bool(found)

        await eventually(has_leader)
        return max(found, key=lambda broker: self.replica(broker.node_id).group.term)


class PartitionCluster(ControlledCluster):
    """One with the topic ``orders`` of one partition, on the first three brokers."""

    def __init__(self, brokers: int = 3, *, config: Mapping[str, int | str] | None = None) -> None:
        super().__init__(None, brokers)
        self.replicas = tuple(self.nodes[:3])
        self._config = config or {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        topic = await self.create_with("orders", 1, len(self.replicas), self._config)
        assert set(topic.partitions[0].replicas) == set(self.replicas)
        numbers = await self.any.controller.allocate_producer_ids(10, 5000)
        assert NUMBER in numbers
        await self.leader()
        return self

    def followers(self, leader: ControlledBroker) -> list[ControlledBroker]:
        """The other brokers that hold the partition."""
        return [self.brokers[node] for node in self.replicas if node != leader.node_id]


async def append(
    cluster: ControlledCluster,
    broker: ControlledBroker,
    body: bytes,
    *,
    acks: Acks = QUORUM,
    timeout_ms: int = 2_000,
) -> AppendReceipt:
    """Produce at one broker's replica, without a gateway."""
    return await cluster.replica(broker.node_id).append(body, acks=acks, timeout_ms=timeout_ms)
