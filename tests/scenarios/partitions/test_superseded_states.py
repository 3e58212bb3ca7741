"""A record that was deleted does not come back with an older state of the records."""

from __future__ import annotations

from groups.records import TOPIC
from groups.requests import Commit, DeleteGroup, OffsetCommit, Request
from partitions.metadata.image import TopicInfo
from partitions.replica.replica import PartitionReplica
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.compacting import records_in, stored
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.virtual_time import eventually

CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1024, "delete.retention.ms": 0}
GONE = b"of the past"


def replica_on(broker: ControlledBroker) -> PartitionReplica:
    return broker.manager.replicas[TOPIC, 0]


def state_of(broker: ControlledBroker) -> bytes:
    return replica_on(broker).machine.snapshot()


async def offsets_topic(cluster: ControlledCluster) -> TopicInfo:
    topic = await cluster.any.controller.create_topic(
        TOPIC, partitions=1, replication_factor=3, config=CONFIG, timeout_ms=5000, internal=True
    )
    await cluster.settled(topic.version)
    return topic


async def ask(cluster: ControlledCluster, request: Request) -> None:
    await cluster.any.groups.service.ask(request, timeout_ms=5000)


async def commit(cluster: ControlledCluster, group: str, offset: int) -> None:
    offsets = (OffsetCommit(topic="orders", topic_id="t", partition=0, offset=offset),)
    await ask(cluster, Commit(group=group, offsets=offsets, is_forced=True))


async def level(cluster: ControlledCluster) -> None:
    def is_level() -> bool:
        replicas = [broker.manager.replicas.get((TOPIC, 0)) for broker in cluster]
        if None in replicas:
            return False
        ends = {one.group.applied_index for one in replicas if one is not None}
        return len(ends) == 1 and ends == {replica_on(cluster.any).group.last_index}

    await eventually(is_level)


def has_the_past(broker: ControlledBroker) -> bool:
    return any(GONE in (one.key or b"") for one in records_in(stored(replica_on(broker).group.log)))


async def offset_of_the_past(cluster: ControlledCluster) -> int:
    """A group was stored in an early segment, deleted in a later one, and is gone: where it was deleted."""
    await offsets_topic(cluster)
    await commit(cluster, GONE.decode(), 7)
    for offset in range(30):
        await commit(cluster, "g", offset)
    await ask(cluster, DeleteGroup(group=GONE.decode()))
    await level(cluster)
    deleted_at = replica_on(cluster.any).group.last_index
    for offset in range(30, 60):
        await commit(cluster, "g", offset)
    await level(cluster)
    assert all(has_the_past(broker) for broker in cluster)
    await cluster.look_for_compaction(6, pause_s=0.05)
    assert not any(has_the_past(broker) for broker in cluster)
    return deleted_at


def lose_states_above(disk: FakeFilesystem, directory: str, index: int) -> None:
    """They were not on the disk yet, or were damaged and removed."""
    for name in disk.list_directory(directory):
        if name == "snapshot" or (name.endswith(".state") and int(name.removesuffix(".state")) > index):
            disk.remove(f"{directory}/{name}")


@in_virtual_time_with(ControlledCluster)
async def test_a_deleted_offset_stays_deleted_without_the_newer_states(cluster: ControlledCluster) -> None:
    # requirement: ST2
    deleted_at = await offset_of_the_past(cluster)
    node = NodeId(2)
    log = replica_on(cluster.brokers[node]).group.log
    assert isinstance(log, SegmentedLog)
    await cluster.stop(node)
    disk = cluster.disks[node]
    assert isinstance(disk, FakeFilesystem)
    lose_states_above(disk, log.directory, deleted_at)
    back = await cluster.start(node)
    await level(cluster)
    other = next(broker for broker in cluster if broker is not back)
    assert GONE not in state_of(back)
    assert state_of(back) == state_of(other)
