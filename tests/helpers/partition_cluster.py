"""Brokers of one process that hold partitions: real groups, replicas and gateways, on logs in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.topic_config import complete
from partitions.replica.replica import PartitionReplica
from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, Acks, AppendReceipt, FetchRequest
from raftlog.core.membership import Membership
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.node.network.transport import Transport
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.storage.log_storage import DiskWork, LogStorage
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import GroupId, NodeId, Offset, TopicId, TopicPartition
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock

ORDERS = TopicPartition("orders", 0)
SETTINGS = HostSettings(tick_ms=4, heartbeat_ticks=3, election_ticks=12, quiet_ticks=1000)


def batch_of(
    *values: bytes, producer: int = -1, epoch: int = -1, sequence: int = -1, timestamp_ms: int = 1_000
) -> bytes:
    """One produced batch; with a producer id it has a sequence."""
    return build_batch(
        [Record(value=value) for value in values],
        codec=Codec.NONE,
        timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 and epoch < 0 else epoch,
        base_sequence=sequence,
    )


class Broker:
    """One broker: a host of groups, its replicas and its gateway. ``disk`` is set while syncs may end."""

    def __init__(self, node_id: NodeId, transport: Transport, image: Callable[[], MetadataImage]) -> None:
        self.node_id = node_id
        self.disk = asyncio.Event()
        self.disk.set()
        self.failures: list[BaseException] = []
        self.replicas: dict[tuple[str, int], PartitionReplica] = {}
        self.host = GroupHost(
            node_id,
            transport,
            VirtualClock(),
            random.Random(node_id),
            self._run_syncs,
            on_fatal=self.failures.append,
            settings=SETTINGS,
        )
        self.why_offline = "it is not open"
        self.gateway = Gateway(
            node_id, image, self.replicas, self.host.calls, why_offline=lambda target: self.why_offline
        )

    async def _run_syncs(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        await self.disk.wait()
        for sync in syncs:
            sync.run()
        return [None for _ in syncs]

    def open(self, topic: TopicInfo, partition: PartitionInfo, log: LogStorage) -> PartitionReplica:
        """Join a partition."""
        target = TopicPartition(topic.name, partition.partition)
        config = complete(topic.config, topic.replication_factor)
        replica = PartitionReplica(target, partition.replicas, config, self.host.clock)
        replica.attach(
            self.host.open_group(
                partition.group_id,
                log,
                replica.machine,
                Membership(frozenset(partition.replicas)),
                replica,
                campaign_first=partition.replicas[0] == self.node_id,
            )
        )
        self.replicas[topic.name, partition.partition] = replica
        return replica


class PartitionCluster:
    """A few brokers and one topic, ``orders``, of one partition; use it with ``async with``."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        replicas: Sequence[int] = (1, 2, 3),
        config: Mapping[str, int | str] | None = None,
    ) -> None:
        self.network = LoopNetwork(random.Random(brokers))
        placed = tuple(NodeId(node) for node in replicas)
        partition = PartitionInfo(partition=0, group_id=GroupId(1), replicas=placed)
        topic = TopicInfo(
            name="orders",
            topic_id=TopicId("0" * 32),
            replication_factor=len(placed),
            partitions=(partition,),
            config=config or {},
            version=1,
        )
        self.image = MetadataImage(cluster_id="test", version=1, topics={"orders": topic})
        self.logs = {node: MemoryLog() for node in placed}
        nodes = [NodeId(node) for node in range(1, brokers + 1)]
        self.brokers = {
            node: Broker(node, self.network.member(node, nodes), lambda: self.image) for node in nodes
        }

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.host.start()
        topic = self.image.topics["orders"]
        for node, log in self.logs.items():
            self.brokers[node].open(topic, topic.partitions[0], log)
        await self.leader()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.disk.set()
        for broker in self.brokers.values():
            await broker.host.stop()
        assert [failure for broker in self.brokers.values() for failure in broker.failures] == []

    async def leader(self, *, other_than: NodeId | None = None) -> Broker:
        """The broker that leads and is ready, once there is one."""
        found: list[Broker] = []

        def has_leader() -> bool:
            found[:] = [
                self.brokers[node]
                for node in self.logs
                if node != other_than and self.replica(node).group.is_ready
            ]
            return bool(found)

        await eventually(has_leader)
        return max(found, key=lambda broker: self.replica(broker.node_id).group.term)

    def replica(self, node: NodeId) -> PartitionReplica:
        """A broker's replica of the partition."""
        return self.brokers[node].replicas["orders", 0]

    def followers(self, leader: Broker) -> list[Broker]:
        """The other brokers that hold the partition."""
        return [self.brokers[node] for node in self.logs if node != leader.node_id]


async def eventually(holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Return as soon as a condition is met; fail when it is not met in time."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.002)


async def append(
    cluster: PartitionCluster, broker: Broker, body: bytes, *, acks: Acks = QUORUM, timeout_ms: int = 2_000
) -> AppendReceipt:
    """Produce at one broker's replica, without a gateway."""
    return await cluster.replica(broker.node_id).append(body, acks=acks, timeout_ms=timeout_ms)


def fetch_from(position: int, **more: int) -> FetchRequest:
    """A read from an offset on."""
    return FetchRequest(position=Offset(position), **more)


def values_of(data: bytes | memoryview) -> list[bytes | None]:
    """The values of all fetched records."""
    return [record.value for batch in split_batches(data) for record in read_records(batch)]
