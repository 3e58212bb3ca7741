"""Actions and checks of tests that move replicas, on a cluster with one topic, ``orders``."""

from __future__ import annotations

from partitions.metadata.image import PartitionInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.values import QUORUM, FetchRequest
from raftlog.records.batch import split_batches
from raftlog.records.reader import read_records
from raftlog.types import NodeId, Offset
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.orders import ORDERS, batch_of


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def info(broker: ControlledBroker) -> PartitionInfo:
    return broker.controller.image.topics["orders"].partitions[0]


async def create(cluster: ControlledCluster) -> tuple[tuple[NodeId, ...], NodeId]:
    """Create the topic; return the brokers that hold it, and the one of four that does not."""
    replicas = (await cluster.create("orders")).partitions[0].replicas
    (outside,) = set(cluster.nodes) - set(replicas)
    return replicas, outside


async def move(cluster: ControlledCluster, *replicas: int) -> None:
    broker = cluster.any
    await broker.admin.change_replicas(MoveReplicas("orders", 0, nodes(*replicas)), 5000)
    assert await broker.admin.until_settled(ORDERS, 10_000)
    assert info(broker).replicas == nodes(*replicas)


async def produce(cluster: ControlledCluster, *values: bytes) -> None:
    await cluster.any.gateway.append(ORDERS, batch_of(*values), acks=QUORUM, timeout_ms=5000)


async def values(broker: ControlledBroker) -> list[bytes | None]:
    found: list[bytes | None] = []
    at = Offset(0)
    while True:
        result = await broker.gateway.fetch(ORDERS, FetchRequest(position=at))
        for batch in split_batches(result.data):
            if not batch.header.is_control:
                found += [record.value for record in read_records(batch)]
        if result.next_offset >= result.high_watermark:
            return found
        at = result.next_offset


async def led_by(asked: ControlledBroker, to: NodeId) -> None:
    """Transfer until it leads: another broker may win."""
    for _ in range(5):
        led, term = await asked.admin.transfer_leadership(ORDERS, to, 5000)
        assert term > 0
        if led == to:
            return
    raise AssertionError(f"broker {to} never led")


def folders(cluster: ControlledCluster, node: NodeId) -> list[str]:
    """The directories of ``orders`` on a broker's disk, whether or not it runs."""
    disk, directory = cluster.disks[node], cluster.directory_of(node)
    return [f"{directory}/{name}" for name in disk.list_directory(directory) if name.startswith("orders-")]


def holds(cluster: ControlledCluster, node: NodeId) -> bool:
    """Whether a broker's disk has a replica of the partition."""
    return any(cluster.disks[node].exists(f"{folder}/Partition-0") for folder in folders(cluster, node))


def replace_disk(cluster: ControlledCluster, node: NodeId) -> None:
    """The broker, which does not run, loses its replica and the identity of its disk."""
    disk, directory = cluster.disks[node], cluster.directory_of(node)
    for folder in folders(cluster, node):
        disk.remove_tree(folder)
    for name in disk.list_directory(directory):
        if name.startswith("disk_id"):
            disk.remove(f"{directory}/{name}")
