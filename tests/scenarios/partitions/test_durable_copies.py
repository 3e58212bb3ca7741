"""Acknowledged records are on the disks of several brokers."""

from __future__ import annotations

import asyncio

from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually

VALUES = [b"value-%d" % number for number in range(20)]


def holders(cluster: PartitionCluster, value: bytes) -> list[NodeId]:
    """Brokers whose disks hold a value, whatever is in the page cache."""
    found = []
    for node, disk in cluster.disks.items():
        assert isinstance(disk, FakeFilesystem)
        files = [disk.stored(path, durable=True) for path in disk.paths() if path.endswith(".log")]
        if any(file is not None and value in file.disk for file in files):
            found.append(node)
    return found


# requirement: N3
@in_virtual_time_with(PartitionCluster)
async def test_a_record_is_on_a_majority_of_disks_when_it_is_acknowledged(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    slow, _ = cluster.followers(leader)
    for value in VALUES:
        for follower in cluster.followers(leader):
            follower.disk.clear()
        acknowledged = asyncio.create_task(leader.append(batch_of(value)))
        await eventually(lambda: holders(cluster, value) == [leader.node_id])  # noqa: B023 - of this turn
        await asyncio.sleep(0.1)
        assert not acknowledged.done(), "one copy is not enough"
        slow.disk.set()
        await acknowledged
        assert holders(cluster, value) == sorted([leader.node_id, slow.node_id])
