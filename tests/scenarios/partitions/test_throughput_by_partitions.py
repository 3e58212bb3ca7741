"""Partitions of a topic append independently: more partitions take more records in the same time."""

from __future__ import annotations

import asyncio

from partitions.values import QUORUM
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.orders import batch_of

BATCHES = 20  # of each partition


async def append_all(cluster: ControlledCluster, target: TopicPartition) -> None:
    """Append to one partition, a batch at a time, each acknowledged before the next one."""
    for _ in range(BATCHES):
        await cluster.any.gateway.append(target, batch_of(b"x"), acks=QUORUM, timeout_ms=5_000)


async def append_one(cluster: ControlledCluster, target: TopicPartition, number: int) -> None:
    """One of many requests, which come a little apart."""
    await asyncio.sleep(number / 20_000)
    await cluster.any.gateway.append(target, batch_of(b"x"), acks=QUORUM, timeout_ms=5_000)


async def seconds_for(cluster: ControlledCluster, topic: str, partitions: int) -> float:
    """The virtual time that all partitions together take for their batches."""
    await cluster.create(topic, partitions)
    targets = [TopicPartition(topic, number) for number in range(partitions)]
    await asyncio.gather(*(append_all(cluster, target) for target in targets))  # also elects the leaders
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.gather(*(append_all(cluster, target) for target in targets))
    return loop.time() - began_s


# requirement: T6
@in_virtual_time_with(ControlledCluster)
async def test_four_partitions_take_more_than_twice_as_many_records(cluster: ControlledCluster) -> None:
    one_s = await seconds_for(cluster, "one", 1)
    four_s = await seconds_for(cluster, "four", 4)
    assert 4 * BATCHES / four_s > 2 * BATCHES / one_s


# requirement: T6
@in_virtual_time_with(ControlledCluster)
async def test_a_disk_that_hangs_holds_up_only_its_own_partitions(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders", 3, factor=1)
    placed = {info.replicas[0]: TopicPartition("orders", info.partition) for info in topic.partitions}
    assert set(placed) == set(cluster.nodes)
    for target in placed.values():
        await append_all(cluster, target)
    hanging, *working = cluster.nodes
    cluster.brokers[hanging].disk.clear()
    held_up = asyncio.create_task(append_all(cluster, placed[hanging]))
    await asyncio.gather(*(append_all(cluster, placed[node]) for node in working))
    assert not held_up.done()
    cluster.brokers[hanging].disk.set()
    await held_up


# requirement: B3
@in_virtual_time_with(ControlledCluster)
async def test_requests_that_come_during_a_sync_share_the_next_one(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 1)
    target = TopicPartition("orders", 0)
    await append_all(cluster, target)
    syncs = sum(broker.host.flusher.syncs for broker in cluster)
    await asyncio.gather(*(append_one(cluster, target, number) for number in range(100)))
    assert sum(broker.host.flusher.syncs for broker in cluster) - syncs < 3 * 10
