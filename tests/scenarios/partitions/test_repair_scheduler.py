"""Replicas under repair or with a broken invariant have one user; moves go by the confirmed target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import msgspec
import pytest

from partitions.metadata.commands import ReplicasChanged
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.reassignment.reassigner import LOOK_S, STUCK_AFTER_S, Reassigner
from raftlog.errors import InvariantViolated, LogCorrupt, NoLeader
from raftlog.node.group_host import GroupHost
from raftlog.repair.repairer import Repairer
from raftlog.repair.scheduler import FailedReplica, RepairScheduler
from raftlog.repair.service import SERVICE, Ask, RepairService, Told
from raftlog.repair.target import RepairTarget
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, Index, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import create, holds, info, move, produce, values
from tests.helpers.virtual_time import eventually

Result = TypeVar("Result")


class BlockedThread:
    """Work of another thread, which waits until it is let go and runs to its end when nobody waits for it."""

    def __init__(self) -> None:
        self.is_reached, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.is_over = False

    async def run(self, work: Callable[[], Result], /) -> Result:
        """Hang first."""
        return await asyncio.shield(asyncio.ensure_future(self._run(work)))

    async def _run(self, work: Callable[[], Result]) -> Result:
        self.is_reached.set()
        await self.may_go_on.wait()
        self.is_over = True
        return work()


class OneReplica:
    """A supervisor with one replica that has failed."""

    def __init__(self) -> None:
        self.is_discharged = False

    def failed(self) -> Sequence[FailedReplica]:
        """It."""
        return [FailedReplica("t/0", LogCorrupt("damaged"), RepairTarget(GroupId(7), "/data/t/0", ()))]

    async def take_offline(self, failed: FailedReplica) -> None:
        """Nothing to close."""

    def bring_online(self, failed: FailedReplica) -> None:
        """Must not come."""
        self.is_discharged = True

    def note(self, failed: FailedReplica, trouble: str) -> None:
        """Nobody reads it."""

    def needs_operator(self, failed: FailedReplica, reason: str) -> None:
        """Nobody reads it."""


async def test_a_treatment_ends_with_its_work_on_the_disk() -> None:
    thread, supervisor = BlockedThread(), OneReplica()
    service = cast("RepairService", None)  # not reached
    scheduler = RepairScheduler(
        Repairer(cast("GroupHost", None), FakeFilesystem(), thread.run, service), supervisor
    )
    running = asyncio.create_task(scheduler.run())
    await asyncio.wait_for(thread.is_reached.wait(), 10)
    try:
        for ending in (asyncio.create_task(scheduler.end(GroupId(7))), running):
            if ending is running:
                running.cancel()
            done, _ = await asyncio.wait([ending], timeout=0.05)
            assert not done
            assert not thread.is_over
    finally:
        thread.may_go_on.set()
    await asyncio.gather(running, return_exceptions=True)
    assert thread.is_over
    assert scheduler.under_repair == 0
    assert not supervisor.is_discharged


class AskedToEnd(RepairScheduler):
    """Says when it was asked to end a treatment."""

    is_asked = False

    async def end(self, group_id: GroupId) -> None:
        """Say so first."""
        self.is_asked = True
        await super().end(group_id)


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_replica_is_deleted_only_after_its_repair_is_over(cluster: ControlledCluster) -> None:
    before, outside = await create(cluster)
    await produce(cluster, b"a")
    led = (await cluster.leader()).node_id
    ill = next(node for node in before if node != led)
    broker, thread = cluster.brokers[ill], BlockedThread()
    manager = broker.manager
    service = RepairService(broker.host, broker.filesystem, thread.run, broker.supervisor.directory_of)
    scheduler = AskedToEnd(Repairer(broker.host, broker.filesystem, thread.run, service), broker.supervisor)
    broker.supervisor.scheduler = scheduler
    running = asyncio.create_task(scheduler.run())
    try:
        manager.replicas["orders", 0].group.stop(LogCorrupt("damaged"))
        await asyncio.wait_for(thread.is_reached.wait(), 10)
        await move(cluster, *(outside if node == ill else node for node in before))
        await eventually(lambda: scheduler.is_asked)
        assert not thread.is_over
        assert scheduler.under_repair == 1
        assert holds(cluster, ill)
    finally:
        thread.may_go_on.set()
    await eventually(lambda: not holds(cluster, ill))
    assert scheduler.under_repair == 0
    await move(cluster, *before)
    assert ("orders", 0) in manager.replicas
    assert await values(broker) == [b"a"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time_with(ControlledCluster)
async def test_peers_are_told_of_the_files_as_they_are_after_another_life(cluster: ControlledCluster) -> None:
    """What was seen of a closed replica is no answer once it has been open again, whoever closes it."""
    await cluster.create("orders")
    await produce(cluster, b"a")
    led = await cluster.leader()
    ill = next(broker for broker in cluster.brokers.values() if broker is not led)
    supervisor = ill.supervisor
    service = RepairService(ill.host, ill.filesystem, asyncio.to_thread, supervisor.directory_of)
    service.offer()
    supervisor.forget = service.forget  # type: ignore[method-assign]

    async def told_to_end_at() -> Index:
        group_id = ill.controller.image.topics["orders"].partitions[0].group_id
        question = msgspec.msgpack.encode(Ask(group_id=group_id, members_at=Index(-1)))
        answer, _ = await led.host.calls.call(ill.node_id, SERVICE, question, timeout_ms=5000)
        return msgspec.msgpack.decode(answer, type=Told).last

    for end in range(3):
        replica = ill.manager.replicas["orders", 0]
        await eventually(lambda replica=replica, end=end: replica.group.status().commit_index == end)
        replica.group.stop(LogCorrupt("damaged"))
        assert await told_to_end_at() == end
        (failed,) = supervisor.failed()
        await supervisor.take_offline(failed)
        assert await told_to_end_at() == end
        supervisor.bring_online(failed)
        await eventually(lambda: ("orders", 0) in ill.manager.replicas)
        await produce(cluster, b"more")


# A group that breaks an invariant ends its broker once; the next start stops and reports the group.
@in_virtual_time_with(ControlledCluster)
async def test_a_broken_replica_is_reported_and_the_others_serve(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 2)
    await produce(cluster, b"a")
    broken = cluster.brokers[NodeId(3)]
    group = info(broken).group_id
    await cluster.stop(NodeId(3))
    notes = BrokenGroups(broken.filesystem, broken.directory, broken.host.clock)
    notes.note(group, InvariantViolated("a test says so"))

    third = await cluster.start(NodeId(3))
    await cluster.registered()
    await eventually(lambda: ("orders", 1) in third.manager.replicas)
    assert ("orders", 0) not in third.manager.replicas
    assert list(third.manager.failures) == [("orders", 0)]
    assert "a test says so" in third.manager.failures["orders", 0]
    await produce(cluster, b"b")

    await move(cluster, 1, 2)
    await eventually(lambda: not holds(cluster, NodeId(3)))
    await move(cluster, 1, 2, 3)
    await eventually(lambda: ("orders", 0) in third.manager.replicas)
    assert third.manager.failures == {}
    assert BrokenGroups(third.filesystem, third.directory, third.host.clock).reasons == {}
    assert await values(third) == [b"a", b"b"]


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
    """A replica may come back with an older target, which was replaced and reached meanwhile."""
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
