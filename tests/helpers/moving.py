"""Actions and checks of tests that move replicas, on a cluster with one topic, ``orders``."""

from __future__ import annotations

from pathlib import Path

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


def holds(tmp_path: Path, broker: int) -> bool:
    folder = tmp_path / f"broker-{broker}"
    return any(folder.glob("orders-*/Partition-0"))
