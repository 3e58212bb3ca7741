"""Producers without consumers, and consumers without producers, over the time that retention covers."""

from __future__ import annotations

import asyncio

from partitions.values import QUORUM
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.orders import batch_of, fetch_from, values_of

ORDERS = TopicPartition("orders", 0)
RETENTION_MS = 2_000
SEGMENT_MS = 50


async def retention_looks(cluster: ControlledCluster, seconds: float) -> None:
    """Time passes, with the usual looks of retention on all brokers."""
    ends_at = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < ends_at:
        await cluster.look_for_retention()
        await asyncio.sleep(0.06)


# requirement: N5
@in_virtual_time_with(ControlledCluster)
async def test_records_wait_for_consumers_and_consumers_for_records(cluster: ControlledCluster) -> None:
    await cluster.create("orders", segment_ms=SEGMENT_MS, retention_ms=RETENTION_MS)
    gateway = cluster.any.gateway
    values = [b"%d" % number for number in range(10)]
    for value in values:  # nobody reads
        await gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=5_000)
        await retention_looks(cluster, 0.1)
    found: list[bytes | None] = []
    while len(found) < len(values):
        result = await gateway.fetch(ORDERS, fetch_from(len(found)))
        found += values_of(result.data)
    assert found == values
    waiting = asyncio.create_task(gateway.fetch(ORDERS, fetch_from(10, wait_ms=60_000)))
    await retention_looks(cluster, 0.5)  # nobody produces
    assert not waiting.done()
    await gateway.append(ORDERS, batch_of(b"late"), acks=QUORUM, timeout_ms=5_000)
    assert values_of((await waiting).data) == [b"late"]
