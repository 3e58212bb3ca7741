"""Brokers in racks: a rack is lost, and everything goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from partitions.values import QUORUM, FetchRequest, Start
from raftlog.types import METADATA_GROUP, NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.controlled_cluster import CONTROLLER, ControlledCluster
from tests.helpers.orders import batch_of, values_of
from tests.helpers.virtual_time import eventually

PARTITIONS = 6
RACKS = ["a", "b", "c"] * 2


# requirement: RP11
@in_virtual_time_with(lambda: ControlledCluster(brokers=6, racks=RACKS))
async def test_a_rack_burns_and_every_partition_goes_on(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders", PARTITIONS)
    for partition in topic.partitions:
        assert {cluster.racks[node] for node in partition.replicas} == {"a", "b", "c"}
    for number in range(PARTITIONS):
        await _append(cluster, number, b"before")
    burnt = cluster.racks[(await cluster.controller_broker()).node_id]
    lost = [node for node in cluster.nodes if cluster.racks[node] == burnt]
    for node in lost:
        cluster.network.isolate(node)
    left = [broker for broker in cluster if broker.node_id not in lost]
    for number in range(PARTITIONS):
        await _append(cluster, number, b"after", through=left[0].node_id)
        target = TopicPartition("orders", number)
        result = await left[-1].gateway.fetch(target, FetchRequest(position=Start.EARLIEST))
        assert values_of(result.data)[-1] == b"after"
        assert b"before" in values_of(result.data)
    await eventually(lambda: any(one.host.groups[METADATA_GROUP].is_ready for one in left))
    await eventually(
        lambda: all(not one.controller.image.brokers[node].alive for one in left for node in lost)
    )
    made = await left[0].controller.create_topic(
        "later", partitions=2, replication_factor=3, config={}, timeout_ms=5_000
    )
    rest = {"a", "b", "c"} - {burnt}
    for partition in made.partitions:
        assert {cluster.racks[node] for node in partition.replicas} == rest
    cluster.network.heal_all()


# requirement: RP11, F1
@in_virtual_time
async def test_replicas_of_a_dead_broker_are_restored_in_its_rack() -> None:
    heals = replace(CONTROLLER, broker_dead_ms=2_000, healing_moves_max=4)
    async with ControlledCluster(brokers=6, racks=RACKS, settings=heals) as cluster:
        await cluster.create("orders", PARTITIONS)
        dead = NodeId(next(iter(cluster)).node_id)
        await cluster.stop(dead)

        def is_restored() -> bool:
            partitions = cluster.any.controller.image.topics["orders"].partitions
            return all(dead not in one.all_replicas and not one.target for one in partitions)

        async with asyncio.timeout(60):
            while not is_restored():
                await asyncio.sleep(0.1)
        for partition in cluster.any.controller.image.topics["orders"].partitions:
            assert {cluster.racks[node] for node in partition.replicas} == {"a", "b", "c"}


async def _append(
    cluster: ControlledCluster, number: int, value: bytes, *, through: NodeId | None = None
) -> None:
    broker = cluster.any if through is None else cluster.brokers[through]
    target = TopicPartition("orders", number)
    await broker.gateway.append(target, batch_of(value), acks=QUORUM, timeout_ms=5_000)
