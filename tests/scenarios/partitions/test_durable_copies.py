"""Acknowledged records are on the disks of several brokers."""

from __future__ import annotations

from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import PartitionCluster, append
from tests.helpers.orders import batch_of

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
@in_virtual_time
async def test_a_record_is_on_a_majority_of_disks_when_it_is_acknowledged() -> None:
    async with PartitionCluster() as cluster:
        leader = await cluster.leader()
        for value in VALUES:
            await append(cluster, leader, batch_of(value))
            assert len(holders(cluster, value)) >= 2
