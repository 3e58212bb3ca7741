"""Simulated brokers with metadata and partitions: real controllers, managers and gateways."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from broker.coordinators.groups import BrokerGroups
from broker.coordinators.transactions import BrokerTransactions
from broker.settings import Groups, QueueSettings, TransactionSettings
from groups.requests import AddOffsets
from partitions.hosting.hosted_metadata import HostedMetadata
from partitions.hosting.peer_addresses import PeerAddresses
from partitions.hosting.replica_manager import ReplicaManager
from partitions.metadata.active import ControllerSettings
from partitions.metadata.balancer import BalancingSettings
from partitions.metadata.commands import AdmitBroker, RegisterBroker
from partitions.metadata.image import BrokerInfo, TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.service import Controller
from partitions.reassignment.admin import PartitionAdmin
from partitions.reassignment.load_meter import LoadMeter
from partitions.reassignment.metadata_members import MetadataMembers
from partitions.reassignment.preferred_leaders import PreferredLeaders
from partitions.reassignment.reassigner import Reassigner
from partitions.reassignment.removal import PartitionRemover
from partitions.replica.replica import PartitionReplica
from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, Acks, AppendReceipt
from raftlog.core.membership import NOBODY, Membership
from raftlog.node.group_host import HostSettings
from raftlog.storage.filesystem import Filesystem
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.simulated_brokers import Place, SimulatedBroker, SimulatedBrokers
from tests.helpers.virtual_time import eventually

SETTINGS = HostSettings(
    tick_ms=4, heartbeat_ticks=3, election_ticks=12, quiesce_ticks=1000, broker_timeout_ms=300
)
PRODUCER_IDS = ProducerIdCipher(b"of a cluster for tests")
NUMBER = 7
PRODUCER = PRODUCER_IDS.id_of(NUMBER)  # a ``PartitionCluster`` has allocated it
CONTROLLER = ControllerSettings(
    cluster_id="c" * 32,
    broker_timeout_ms=300,
    duty_interval_ms=20,
    retry_pause_ms=5,
    attempt_timeout_ms=500,
    balancing=BalancingSettings(moves_max=0),
)


def _registration(place: Place, rack: str | None, disk_id: str) -> RegisterBroker:
    node_id, host = place.node_id, "127.0.0.1"
    http, https = f"http://{host}:{7000 + node_id}", f"https://{host}:{8000 + node_id}"
    life = f"life-{place.life}"
    return RegisterBroker(node_id, life, http, host, 9000 + node_id, rack, disk_id, https_url=https)


class ControlledBroker(SimulatedBroker):
    """One broker with metadata and partitions; it does not repair them."""

    group_settings = Groups(partitions=1)

    why_offline = "it is not open"
    is_awaited = False  # whether the outcome of an append to any partition is awaited

    def __init__(
        self, place: Place, directory: str, rack: str | None, settings: ControllerSettings = CONTROLLER
    ) -> None:
        super().__init__(place, directory, SETTINGS, repairs=False)
        node_id = place.node_id
        registration = _registration(place, rack, self.registry.disk_id)
        rng = random.Random(f"ids {node_id} {place.life}")
        self.has_joined = node_id not in place.nodes
        first = NOBODY if self.has_joined else Membership(frozenset(place.nodes))
        self.controller = Controller(self.host, first, registration, settings, rng)
        self.manager = ReplicaManager(
            self.host,
            self.controller,
            self.supervisor,
            self.logs,
            self.broken,
            producer_ids=PRODUCER_IDS,
            derive=lambda target: self.groups.derive(target) or self.transactions.derive(target),
            join=lambda *asked: self.transactions.join(*asked),
        )
        self.metadata = HostedMetadata(
            self.controller,
            self._begins,
            self.logs,
            asyncio.to_thread,
            f"{self.directory}/__metadata",
            tuple(node for node in place.nodes if node != node_id),
            lambda image: self.addresses.stands_in_log(image),
        )
        self.addresses = PeerAddresses(
            node_id, {}, lambda peer, host, port: self.transport.set_peer(peer, "", 0), self.host
        )
        self.controller.subscribe(self.addresses.image_changed)
        self.members = MetadataMembers(self.host, self.controller)
        self.gateway = Gateway(
            node_id,
            self.controller,
            self.manager.replicas,
            self.host.calls,
            why_offline=lambda target: self.why_offline,
            awaiting_archive=self.retention.awaiting_archive,
        )
        self.controller.calls = self.gateway.relay
        parts = self.controller, self.gateway, self.clock
        of_groups = self.group_settings, QueueSettings(), *parts
        self.groups = BrokerGroups(node_id, *of_groups, self._check_open, self._keeps_room)
        self.transactions = BrokerTransactions(
            node_id, TransactionSettings(partitions=1), *parts, PRODUCER_IDS, self.groups.service
        )
        self.admin = PartitionAdmin(self.host, self.controller, self.gateway, self.clock)
        self.reassigner = Reassigner(self.host, self.controller, self.manager.replicas)
        self.loads = LoadMeter(self.host, self.manager.replicas)
        self.controller.loads_here = self.loads.loads
        self._balancing = settings.balancing
        self.remover = PartitionRemover(
            self.host, self.controller, self.manager.replicas, self._awaits_append
        )

    def _keeps_room(self) -> bool:
        return self.has_reserve

    async def _check_open(self, added: AddOffsets) -> None:
        await self.transactions.check_open(added)

    def is_in_use(self, peer: NodeId) -> bool:
        return self.controller.image.is_in_use(peer)

    @property
    def orders(self) -> PartitionReplica:
        """Replica of the first partition of ``orders`` on this broker."""
        return self.manager.replicas["orders", 0]

    async def append(self, body: bytes, *, acks: Acks = QUORUM, timeout_ms: int = 2_000) -> AppendReceipt:
        """Produce at this broker's replica of ``orders``, without a gateway."""
        return await self.orders.append(body, acks=acks, timeout_ms=timeout_ms)

    async def start(self) -> None:
        """Join the cluster."""
        self.controller.offer()
        self.addresses.begin()
        await self.host.start()
        self.supervisor.host(self.metadata)
        await self.supervisor.start()
        await self.supervisor.serving(METADATA_GROUP)
        await self.manager.start()
        await self.reassigner.start()
        duties = [self.members.run, self.addresses.run, self.loads.run, self.remover.run]
        if self._balancing.moves_max:
            parts = self.host, lambda: self.controller.image, self.manager.replicas
            duties.append(PreferredLeaders(*parts, self._balancing.after_ms).run)
        self._following = [self.host.begin_duty(duty) for duty in duties]

    async def stop(self) -> None:
        """A clean stop."""
        await self.reassigner.stop()
        for task in self._following:
            task.cancel()
        await self.manager.stop()
        await self.supervisor.stop()
        await self.controller.stop()
        await super().stop()

    async def _awaits_append(self, topic: str, partition: int, timeout_ms: int) -> bool:
        return self.is_awaited

    async def _begins(self) -> bool:
        """The cluster starts with the first brokers."""
        return self.has_joined


class ControlledCluster(SimulatedBrokers[ControlledBroker]):
    """Brokers 1, 2, 3, ... of one cluster. Without a directory their disks are in memory."""

    def __init__(
        self,
        directory: str | None = None,
        brokers: int = 3,
        *,
        racks: Sequence[str] = (),
        settings: ControllerSettings = CONTROLLER,
    ) -> None:
        disk = FakeFilesystem if directory is None else UnsyncedFilesystem
        self.disks: dict[NodeId, Filesystem] = {NodeId(number): disk() for number in range(1, brokers + 1)}
        super().__init__(self.disks)
        self._directory = directory or "/data"
        self._settings = settings
        self.settings_of: dict[NodeId, ControllerSettings] = {}  # of brokers that have their own
        self.racks = {node: racks[at] if racks else None for at, node in enumerate(self.nodes)}

    def new(self, place: Place) -> ControlledBroker:
        where = self.directory_of(place.node_id), self.racks[place.node_id]
        return ControlledBroker(place, *where, self.settings_of.get(place.node_id, self._settings))

    def directory_of(self, node: NodeId) -> str:
        """Where a broker has its files, running or not."""
        return f"{self._directory}/broker-{node}"

    async def ready(self) -> None:
        await self.registered()

    async def registered(self) -> None:
        """Return once every broker sees every running broker, alive, in its current incarnation."""
        await eventually(lambda: all(broker.controller.registration.is_registered for broker in self))
        version = max(broker.controller.image.version for broker in self)
        for broker in self:
            await broker.controller.wait_for_version(version, 5000)

    async def join(self, number: int, *, admission: str = "", replaces: bool = False) -> ControlledBroker:
        """A broker that the cluster was not created with, or one that takes the place of a dead one."""
        node = NodeId(number)
        await self.admit(number, admission=admission, replaces=replaces)
        self.disks[node] = FakeFilesystem()
        self.racks.setdefault(node, None)
        return await self.start(node)

    async def admit(self, number: int, *, admission: str = "", replaces: bool = False) -> BrokerInfo:
        """Let a broker join; it does not start yet."""
        request = AdmitBroker(
            admission or f"{number:032x}",
            NodeId(number),
            f"http://127.0.0.1:{7000 + number}",
            "127.0.0.1",
            9000 + number,
            replaces=replaces,
        )
        return await self.any.controller.admit_broker(request, 5000)

    @property
    def any(self) -> ControlledBroker:
        return next(iter(self))

    async def controller_broker(self) -> ControlledBroker:
        """The broker with the active controller."""

        def leader() -> ControlledBroker | None:
            for broker in self:
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
            name,
            partitions=partitions,
            replication_factor=factor,
            config=config,
            timeout_ms=5000,
            internal=name.startswith("__"),
        )
        await self.settled(topic.version)
        return topic

    async def settled(self, version: int) -> None:
        """Return once every broker's replicas are those of metadata of this version."""
        async with asyncio.timeout(10):
            for broker in self:
                await broker.controller.wait_for_version(version, 5000)
                await broker.manager.settled()

    async def leader(self, *, other_than: NodeId | None = None, partition: int = 0) -> ControlledBroker:
        """The broker that leads a partition of ``orders`` and is ready, once there is one."""
        found: list[tuple[int, ControlledBroker]] = []

        def has_leader() -> bool:
            found[:] = [
                (replica.group.term, broker)
                for node, broker in self.brokers.items()
                if node != other_than
                and (replica := broker.manager.replicas.get(("orders", partition))) is not None
                and replica.group.is_ready
            ]
            return bool(found)

        await eventually(has_leader)
        return max(found, key=lambda each: each[0])[1]

    async def lead(self, node: NodeId, topic: str = "orders") -> None:
        """Transfer the leadership of a topic's partition 0 until this broker leads and is ready."""
        await eventually(lambda: all((topic, 0) in broker.manager.replicas for broker in self))
        groups = {broker.node_id: broker.manager.replicas[topic, 0].group for broker in self}
        async with asyncio.timeout(10):
            while not groups[node].is_ready:
                for group in groups.values():
                    if group.is_leader:
                        group.transfer_leadership(node)
                await asyncio.sleep(0.1)

    def expect_failed_duties(self) -> list[str]:
        """Return the names of duties that fail from now on; no test goes on to fail for them."""
        names: list[str] = []
        for broker in self:
            broker.host.duties.on_failed = lambda duty, error: names.append(duty)
        return names

    async def look_for_retention(self) -> None:
        """One look of retention on every broker."""
        for broker in self:
            await broker.retention.look()

    async def look_for_compaction(self, times: int = 1, *, pause_s: float = 0.0) -> None:
        """Looks of compaction on every broker, after a pause each."""
        for _ in range(times):
            await asyncio.sleep(pause_s)
            for broker in self:
                await broker.compaction.look()

    async def delete(self, name: str) -> None:
        """Delete a topic and wait until every broker has closed its replicas."""
        await self.settled(
            await self.any.controller.delete_topic(name, expected_version=None, timeout_ms=5000)
        )

    async def configure(self, name: str, config: Mapping[str, int | str]) -> None:
        """Change settings of a topic and wait until every broker goes by them."""
        changed = await self.any.controller.alter_config(name, config, expected_version=None, timeout_ms=5000)
        await self.settled(changed.version)

    async def restart(self, node: NodeId) -> ControlledBroker:
        """Stop a broker and start it again; return its next incarnation."""
        await self.stop(node)
        return await self.start(node)


class PartitionCluster(ControlledCluster):
    """One with the topic ``orders`` of one partition, on the first three brokers."""

    def __init__(self, brokers: int = 3, *, config: Mapping[str, int | str] | None = None) -> None:
        super().__init__(None, brokers)
        self.replicas = tuple(self.nodes[:3])
        self._config = config or {}

    async def ready(self) -> None:
        await super().ready()
        topic = await self.create_with("orders", 1, len(self.replicas), self._config)
        assert set(topic.partitions[0].replicas) == set(self.replicas)
        numbers = await self.any.controller.allocate_producer_ids(10, 5000)
        assert NUMBER in numbers
        await self.leader()

    def followers(self, leader: ControlledBroker) -> list[ControlledBroker]:
        """The other brokers that hold the partition."""
        return [self.brokers[node] for node in self.replicas if node != leader.node_id]
