"""Whoever is far behind is brought up at a bounded rate, and nobody else has to wait for it."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM
from raftlog.node.catch_up import FAR_BYTES
from raftlog.node.group_host import HostSettings
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.node_cluster import NodeCluster
from tests.helpers.orders import batch_of

GROUP = GroupId(1)
LARGE = LogSettings(segment_bytes=16 << 20, index_interval_bytes=64 << 10)
BATCH_BYTES = 512 << 10
BATCHES = 56
RATE = 5 << 20


async def append(cluster: NodeCluster, value: bytes) -> None:
    """One batch, acknowledged by a quorum."""
    await cluster.leading().replicas[GROUP].append(batch_of(value), acks=QUORUM, timeout_ms=5000)


@pytest.mark.parametrize(("rate", "at_least_s", "at_most_s"), [(RATE, 2.5, 8.0), (0, 0.0, 2.0)])
@in_virtual_time
async def test_a_replica_far_behind_is_brought_up_at_a_bounded_rate(
    rate: int, at_least_s: float, at_most_s: float
) -> None:
    assert (BATCHES * BATCH_BYTES - FAR_BYTES) / RATE > 2.5
    settings = HostSettings(catch_up_bytes_per_s=rate)
    cluster = NodeCluster(3, settings=settings, log_settings=LARGE)
    await cluster.start()
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(BATCHES):
        await append(cluster, bytes(BATCH_BYTES))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await behind.start()
    waits = []
    while not cluster.is_settled(GROUP):
        asked = loop.time()
        await append(cluster, b"meanwhile")
        waits.append(loop.time() - asked)
        await asyncio.sleep(0.1)
        assert loop.time() - began < 60
    took_s = loop.time() - began
    assert at_least_s <= took_s <= at_most_s, took_s
    assert max(waits) < 0.5, waits
    await cluster.stop()


@pytest.mark.parametrize("batches", [3, BATCHES])  # read at once, and on a thread
@in_virtual_time_with(lambda: NodeCluster(3, log_settings=LARGE))
async def test_a_leader_without_descriptors_brings_a_replica_up_later(
    cluster: NodeCluster, batches: int
) -> None:
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(batches):
        await append(cluster, bytes(BATCH_BYTES // batches))
    leader, refused = cluster.leading(), list[str]()

    def fails(path: str) -> bool:
        is_log = path.endswith(".log")
        refused.extend([path] * is_log)
        return is_log

    leader.filesystem.fails_open = fails
    await behind.start()
    await cluster.until(lambda: len(refused) > 3)
    leader.filesystem.fails_open = lambda path: False
    await cluster.settled()
    assert cluster.leading() is leader
