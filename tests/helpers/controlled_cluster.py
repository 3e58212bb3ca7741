"""Brokers of one process with metadata: real hosts, controllers and managers, in memory or in a directory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from partitions.hosting.hosted_metadata import HostedMetadata
from partitions.hosting.replica_manager import ReplicaManager
from partitions.metadata.active import ControllerSettings
from partitions.metadata.commands import RegisterBroker
from partitions.metadata.image import TopicInfo
from partitions.metadata.producer_ids import ProducerIds
from partitions.metadata.service import Controller
from partitions.metadata.source import MetadataSource
from partitions.reassignment.admin import PartitionAdmin
from partitions.reassignment.reassigner import Reassigner
from partitions.routing.gateway import Gateway
from raftlog.hosting.compaction import CompactionManager
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.retention import RetentionManager
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.group_host import GroupHost
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.shifted_clock import ShiftedClock
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.partition_cluster import SETTINGS, eventually

PRODUCER_IDS = ProducerIds(b"of a cluster for tests")
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
        filesystem: Filesystem | None = None,
    ) -> None:
        self.node_id = node_id
        self.directory = f"{directory}/broker-{node_id}"
        self.filesystem = filesystem or UnsyncedFilesystem()
        self.clock = ShiftedClock()
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
        registration = RegisterBroker(
            node_id,
            f"life-{life}",
            f"http://127.0.0.1:{7000 + node_id}",
            "127.0.0.1",
            9000 + node_id,
            rack,
            registry.disk_id,
        )
        rng = random.Random(f"ids {node_id} {life}")
        self.controller = Controller(self.host, voters, registration, CONTROLLER, rng)
        self.supervisor, self.manager = hosting(
            self.host, self.controller, self.filesystem, self.directory, registry
        )
        self.retention = RetentionManager(self.host, self.supervisor.serving_tenants)
        self.compaction = CompactionManager(
            self.host, self.filesystem, asyncio.to_thread, self.supervisor.serving_tenants, 0
        )
        self.metadata = HostedMetadata(
            self.controller,
            self._begins,
            LogOpener(self.filesystem, self.directory, self.host.clock, registry),
            asyncio.to_thread,
            f"{self.directory}/__metadata",
            tuple(voters - {node_id}),
        )
        self.gateway = Gateway(node_id, lambda: self.controller.image, self.manager.replicas, self.host.calls)
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
        await self.disk.wait()
        return [self._run(sync) for sync in syncs]

    def _run(self, sync: DiskWork) -> OSError | None:
        try:
            sync.run()
        except OSError as error:
            return error
        return None


class ControlledCluster:
    """Brokers 1, 2, 3, ... of one cluster; use it with ``async with``."""

    def __init__(self, directory: str, brokers: int = 3, *, racks: Sequence[str] = ()) -> None:
        self.network = LoopNetwork(random.Random(brokers))
        self.directory = directory
        self.nodes = [NodeId(number) for number in range(1, brokers + 1)]
        self.racks = {node: racks[at] if racks else None for at, node in enumerate(self.nodes)}
        self.brokers: dict[NodeId, ControlledBroker] = {}
        self._lives = 0

    def __iter__(self) -> Iterator[ControlledBroker]:
        return iter(self.brokers.values())

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
            filesystem=filesystem,
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
        topic = await self.any.controller.create_topic(
            name,
            partitions=partitions,
            replication_factor=factor,
            config={key.replace("_", "."): value for key, value in config.items()},
            timeout_ms=5000,
        )
        await self.settled(topic.version)
        return topic

    async def settled(self, version: int) -> None:
        """Return once every broker's replicas are those of metadata of this version."""
        async with asyncio.timeout(10):
            for broker in self.brokers.values():
                await broker.controller.wait_for_version(version, 5000)
                await broker.manager.settled()
