"""The leader that moves replicas goes by this target and this group, and by nothing that it saw of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from partitions.metadata.commands import ReplicasChanged
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.reassignment.patience import STUCK_AFTER_S
from partitions.reassignment.reassigner import LOOK_S, Reassigner
from raftlog.errors import InvariantViolated, NoLeader
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import create, produce
from tests.helpers.virtual_time import eventually

KEY = ("orders", 0)


class Said:
    """Metadata that says one thing, and remembers what it is told. Only ``newest`` is confirmed."""

    def __init__(self, image: MetadataImage, newest: MetadataImage | None = None) -> None:
        self.image = image
        self.reports: list[ReplicasChanged] = []
        self.asked = 0
        self._newest = newest

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """The newest image, if a majority can be asked."""
        self.asked += 1
        if self._newest is None:
            raise NoLeader("no majority is there")
        self.image = self._newest
        return self._newest

    async def change_replicas(self, wish: ReplicasChanged, timeout_ms: int) -> TopicInfo:
        """A leader says who votes."""
        self.reports.append(wish)
        return self.image.topics[wish.name]


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_preparations_for_one_target_do_not_count_for_the_next(cluster: ControlledCluster) -> None:
    before, outside = await create(cluster)
    led = await cluster.leader()
    await led.reassigner.stop()
    mover = Reassigner(led.host, led.controller, led.manager.replicas)
    for wanted in ((*before, outside), (outside, *before)):
        wish = MoveReplicas("orders", 0, wanted)
        moved = await led.admin.change_replicas(wish, 5000)
        await cluster.settled(moved.version)
        mover._look(KEY)
        assert mover._moves[KEY].prepared == set()
        await eventually(lambda: mover._moves[KEY].prepared == {outside})
    await mover.stop()


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_learner_catches_up_with_records_since_the_last_look(cluster: ControlledCluster) -> None:
    before, outside = await create(cluster)
    led = await cluster.leader()
    await led.reassigner.stop()
    mover = Reassigner(led.host, led.controller, led.manager.replicas)
    moved = await led.admin.change_replicas(MoveReplicas("orders", 0, (*before, outside)), 5000)
    await cluster.settled(moved.version)
    mover._look(KEY)
    await eventually(lambda: mover._moves[KEY].step is None)
    group = led.manager.replicas[KEY].group
    for _ in range(3):
        await produce(cluster, b"more")
        goal = group.last_index
        mover._look(KEY)
        assert mover._moves[KEY].goal >= goal
        await eventually(lambda: mover._moves[KEY].step is None)
    await mover.stop()


# requirement: F6
@in_virtual_time_with(ControlledCluster)
async def test_the_leader_of_an_abandoned_group_reports_nothing(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders")
    await produce(cluster, b"a")
    led = await cluster.leader()
    (partition,) = topic.partitions
    for group_id, reports in ((GroupId(99), 0), (partition.group_id, 1)):
        there = replace(partition, group_id=group_id, target=partition.replicas)
        topics = {"orders": replace(topic, partitions=(there,))}
        metadata = Said(replace(led.controller.image, topics=topics))
        mover = Reassigner(led.host, metadata, led.manager.replicas)
        mover._look(KEY)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(metadata.reports) == reports
        await mover.stop()


# requirement: F2
@pytest.mark.parametrize("is_answered", [False, True])
@in_virtual_time_with(ControlledCluster)
async def test_a_leader_changes_nothing_by_metadata_that_is_not_confirmed(
    cluster: ControlledCluster, is_answered: bool
) -> None:
    """It may have come back with an older target, which was replaced by one that was reached meanwhile."""
    topic = await cluster.create("orders")
    await produce(cluster, b"a")
    led = await cluster.leader()
    (partition,) = topic.partitions
    alone = replace(topic, partitions=(replace(partition, target=(led.node_id,)),))
    old = replace(led.controller.image, topics={"orders": alone})
    metadata = Said(old, replace(old, topics={"orders": topic}) if is_answered else None)
    mover = Reassigner(led.host, metadata, led.manager.replicas)
    for _ in range(3):
        mover._look(KEY)
        await eventually(lambda: KEY not in mover._moves or mover._moves[KEY].step is None)
        if metadata.image is old:
            assert metadata.asked > 0
    status = led.manager.replicas[KEY].group.status()
    assert status.membership.voters == set(partition.replicas)
    assert status.membership_index == -1
    await mover.stop()


# requirement: F1
@in_virtual_time_with(ControlledCluster)
async def test_a_learner_that_is_not_open_any_more_is_reported(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders", factor=1)
    await produce(cluster, b"a")
    led = await cluster.leader()
    await led.reassigner.stop()
    other = next(node for node in cluster.nodes if node != led.node_id)
    moved = await led.admin.change_replicas(MoveReplicas("orders", 0, (other,)), 5000)
    await cluster.settled(moved.version)
    mover = Reassigner(led.host, led.controller, led.manager.replicas)
    group = led.manager.replicas[KEY].group

    async def look() -> None:
        mover._look(KEY)
        await eventually(lambda: mover._moves[KEY].step is None)

    while group.status().learner_match_index.get(other, -1) < group.last_index:
        await look()
        await asyncio.sleep(LOOK_S)
    await cluster.stop(other)
    directory, disk = cluster.directory_of(other), cluster.disks[other]
    BrokenGroups(disk, directory, led.host.clock).note(
        topic.partitions[0].group_id, InvariantViolated("a test says so")
    )
    await cluster.start(other)
    await cluster.registered()
    for _ in range(round(2 * STUCK_AFTER_S / LOOK_S)):
        await look()
        await asyncio.sleep(LOOK_S)
    assert group.status().membership.voters == {led.node_id}
    (report,) = await led.controller.refused(5000)
    assert report.broker_id == other
    assert "a test says so" in report.reason
    await mover.stop()
