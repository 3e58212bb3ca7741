"""The controller as any broker calls it, with real groups, logs and calls; the log of the metadata."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from partitions.hosting import hosted_metadata
from partitions.hosting.hosted_metadata import HostedMetadata
from partitions.metadata.commands import DecommissionBroker, DrainBroker, command_batch
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.service import Controller
from partitions.values import QUORUM
from raftlog.errors import (
    CommitUnknown,
    InvalidRequest,
    NoLeader,
    PreconditionFailed,
    RaftlogError,
    TopicExists,
)
from raftlog.hosting.tenant import SnapshotRetention
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import METADATA_GROUP, NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.metadata_images import register
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually

Change = Callable[[Controller], Awaitable[object]]

CHANGES: dict[str, Change] = {  # each of one broker or topic, and harmless when it is carried out twice
    "decommission": lambda of: of.change_broker(DecommissionBroker(NodeId(4)), 5000),
    "recommission": lambda of: of.change_broker(DecommissionBroker(NodeId(4), decommissioned=False), 5000),
    "drain": lambda of: of.change_broker(DrainBroker(NodeId(4)), 5000),
    "config": lambda of: of.alter_config(
        "orders", {"retention.ms": 60_000}, expected_version=None, timeout_ms=5000
    ),
    "replicas": lambda of: of.change_replicas(
        MoveReplicas("orders", 0, (NodeId(3), NodeId(2), NodeId(1))), 5000
    ),
    "delete": lambda of: of.delete_topic("orders", expected_version=None, timeout_ms=5000),
}


async def create(
    broker: ControlledBroker, name: str, *, partitions: int = 1, factor: int = 3, timeout_ms: int = 5000
) -> TopicInfo:
    return await broker.controller.create_topic(
        name, partitions=partitions, replication_factor=factor, config={}, timeout_ms=timeout_ms
    )


# requirement: ST3
@in_virtual_time_with(ControlledCluster)
async def test_a_broker_that_is_starting_refuses_no_change_for_good(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its peers reach it before it has read its metadata log, which may take long."""
    leading = await cluster.controller_broker()
    outside, starting = sorted(set(cluster.nodes) - {leading.node_id})
    await cluster.stop(starting)
    may_open, opens = asyncio.Event(), HostedMetadata.open_log

    async def open_log(metadata: HostedMetadata) -> SegmentedLog:
        await may_open.wait()
        return await opens(metadata)

    monkeypatch.setattr(HostedMetadata, "open_log", open_log)
    started = asyncio.create_task(cluster.start(starting))
    asking = cluster.brokers[outside]
    await eventually(lambda: asking.host.is_reachable(starting))
    cluster.network.cut_both(leading.node_id, outside)
    await eventually(lambda: asking.controller.leader is None)
    with pytest.raises(NoLeader):
        await create(asking, "late", timeout_ms=1_000)
    may_open.set()
    await started
    assert await create(asking, "late") == asking.controller.image.topics["late"]


# requirement: ST3, ST6
@in_virtual_time_with(ControlledCluster)
async def test_any_broker_creates_a_topic_and_all_of_them_learn_it(cluster: ControlledCluster) -> None:
    for broker in cluster.brokers.values():
        name = f"from-{broker.node_id}"
        topic = await create(broker, name, partitions=3)
        assert broker.controller.image.topics[name] == topic
        assert topic.config == {}
        for other in cluster.brokers.values():
            await other.controller.wait_for_version(topic.version, 2000)
            assert other.controller.image.topics[name] == topic


# requirement: T1
@in_virtual_time_with(ControlledCluster)
async def test_of_many_who_create_one_name_at_once_exactly_one_succeeds(cluster: ControlledCluster) -> None:
    brokers = list(cluster.brokers.values()) * 3
    outcomes = await asyncio.gather(*(create(b, "orders") for b in brokers), return_exceptions=True)
    made = [outcome for outcome in outcomes if isinstance(outcome, TopicInfo)]
    assert len(made) == 1
    assert all(isinstance(outcome, TopicExists) for outcome in outcomes if outcome not in made)
    assert cluster.any.controller.image.topics["orders"].topic_id == made[0].topic_id


# requirement: T3
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_topics_created_at_once_are_spread_evenly(cluster: ControlledCluster) -> None:
    brokers = list(cluster.brokers.values())
    await asyncio.gather(*(create(brokers[n % 4], f"t{n}", partitions=n % 3 + 1) for n in range(10)))
    topics = (await cluster.any.controller.current_image(2000)).topics.values()
    rows = [partition.replicas for topic in topics for partition in topic.partitions]
    replicas = Counter(node for row in rows for node in row)
    leaders = Counter(row[0] for row in rows)
    assert max(replicas.values()) - min(replicas[node] for node in cluster.nodes) <= 1
    assert max(leaders.values()) - min(leaders[node] for node in cluster.nodes) <= 1


# requirement: ST5
@in_virtual_time_with(ControlledCluster)
async def test_another_controller_takes_over_and_knows_all_metadata(cluster: ControlledCluster) -> None:
    topic = await create(cluster.any, "before")
    first = await cluster.controller_broker()
    assert {broker.controller.leader for broker in cluster.brokers.values()} == {first.node_id}
    cluster.network.isolate(first.node_id)
    others = [broker for broker in cluster.brokers.values() if broker is not first]
    await create(others[0], "after", factor=1)
    second = others[0].controller.leader
    assert second not in (None, first.node_id)
    assert others[0].controller.image.topics["before"] == topic
    led = [broker.host.groups[METADATA_GROUP] for broker in cluster.brokers.values()]
    await eventually(lambda: [group.node_id for group in led if group.is_leader] == [second])
    cluster.network.heal_all()
    image = await first.controller.current_image(5000)
    assert image.topics.keys() == {"before", "after"}


@in_virtual_time_with(ControlledCluster)
async def test_a_controller_cut_off_neither_claims_success_nor_refuses(cluster: ControlledCluster) -> None:
    first = await cluster.controller_broker()
    await create(first, "orders")
    cluster.network.isolate(first.node_id)  # the others may have deleted the topic since
    for name, timeout_ms in (("orders", 300), ("other", 300), ("later", 100)):
        with pytest.raises((CommitUnknown, NoLeader)):
            await create(first, name, timeout_ms=timeout_ms)
    with pytest.raises(NoLeader):
        await create(first, "later", timeout_ms=100)


# requirement: ST5
@pytest.mark.parametrize("change", CHANGES)
@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_change_is_carried_out_although_its_controller_loses_leadership(
    cluster: ControlledCluster, change: str
) -> None:
    await create(cluster.any, "orders")
    first = await cluster.controller_broker()
    await asyncio.sleep(2)  # until all brokers are registered: a change waits for earlier changes
    others = [broker for broker in cluster if broker is not first]
    group = first.host.groups[METADATA_GROUP]
    before = group.last_index
    asked = asyncio.create_task(CHANGES[change](first.controller))
    while group.last_index == before:
        assert not asked.done(), asked
        await asyncio.sleep(0)
    cluster.network.isolate(first.node_id)  # the change is in its log, and in no other
    await eventually(lambda: any(broker.host.groups[METADATA_GROUP].is_ready for broker in others))
    cluster.network.heal_all()
    await asked


# requirement: ST5
@in_virtual_time_with(ControlledCluster)
async def test_a_deletion_whose_answer_was_lost_counts_as_done(cluster: ControlledCluster) -> None:
    await create(cluster.any, "orders")
    first = await cluster.controller_broker()
    asker = next(broker for broker in cluster if broker is not first)

    def lose_the_answer(image: MetadataImage) -> None:
        if "orders" not in image.topics:
            cluster.network.isolate(first.node_id)

    first.controller.subscribe(lose_the_answer)
    version = await asker.controller.delete_topic("orders", expected_version=None, timeout_ms=5000)
    assert asker.controller.image.version >= version
    assert "orders" not in asker.controller.image.topics


# requirement: ST4
@in_virtual_time_with(ControlledCluster)
async def test_a_silent_broker_is_fenced_in_time_and_taken_back(cluster: ControlledCluster) -> None:
    leader = await cluster.controller_broker()
    silent = next(node for node in cluster.nodes if node != leader.node_id)
    cluster.network.isolate(silent)
    began = asyncio.get_running_loop().time()
    await eventually(lambda: not leader.controller.image.brokers[silent].alive)
    took_s = asyncio.get_running_loop().time() - began
    assert 0.2 < took_s < 1.0  # the time set for these tests is 0.3 s
    cluster.network.heal_all()
    await eventually(lambda: leader.controller.image.brokers[silent].alive)


@in_virtual_time_with(ControlledCluster)
async def test_a_broker_that_starts_again_registers_its_new_life(cluster: ControlledCluster) -> None:
    topic = await create(cluster.any, "orders")
    before = cluster.any.controller.image.brokers[NodeId(2)].incarnation
    await cluster.stop(NodeId(2))
    again = await cluster.start(NodeId(2))
    await cluster.registered()
    assert again.controller.image.brokers[NodeId(2)].incarnation != before
    assert again.controller.image.topics["orders"] == topic


@in_virtual_time_with(ControlledCluster)
async def test_a_process_whose_id_another_took_does_not_fight_for_it(cluster: ControlledCluster) -> None:
    first = cluster.brokers[NodeId(1)]
    await eventually(lambda: first.controller.registration.is_registered)
    leader = await cluster.controller_broker()
    known = leader.controller.image.brokers[NodeId(1)].incarnation
    batch = command_batch(register(1, incarnation="another", replaces=known), timestamp_ms=0)
    leader.host.groups[METADATA_GROUP].propose([batch])
    await eventually(lambda: first.controller.registration.is_superseded)
    version = (await create(first, "orders")).version
    assert first.controller.image.brokers[NodeId(1)].incarnation == "another"
    assert first.controller.image.version == version


async def test_all_metadata_survives_a_stop_of_all_brokers(tmp_path: Path) -> None:
    async with ControlledCluster(str(tmp_path)) as cluster:
        topic = await create(cluster.any, "orders")
        ids = await cluster.any.controller.allocate_producer_ids(10, 2000)
        brokers = cluster.brokers.values()
        await eventually(lambda: all(broker.controller.image.bootstrap_id for broker in brokers))
        cluster_id = cluster.any.controller.image.bootstrap_id
    async with ControlledCluster(str(tmp_path)) as cluster:
        image = await cluster.any.controller.current_image(5000)
        assert image.topics["orders"] == topic
        assert image.bootstrap_id == cluster_id != ""
        assert image.cluster_id == "c" * 32
        assert (await cluster.any.controller.allocate_producer_ids(1, 2000)).start >= ids.stop


@in_virtual_time_with(ControlledCluster)
async def test_producer_ids_from_all_brokers_are_all_different(cluster: ControlledCluster) -> None:
    brokers = list(cluster.brokers.values()) * 4
    blocks = await asyncio.gather(*(b.controller.allocate_producer_ids(7, 2000) for b in brokers))
    ids = [number for block in blocks for number in block]
    assert len(ids) == len(set(ids)) == 7 * 12
    with pytest.raises(InvalidRequest):
        await brokers[0].controller.allocate_producer_ids(0, 2000)


# requirement: F4
@in_virtual_time_with(ControlledCluster)
async def test_partitions_that_two_brokers_add_at_once_are_added_once(cluster: ControlledCluster) -> None:
    first, second, third = cluster.brokers.values()
    await create(first, "orders")
    add = {"count": 2, "expected": 1, "expected_version": None, "timeout_ms": 2000}
    one, other = await asyncio.gather(
        first.controller.add_partitions("orders", **add),
        second.controller.add_partitions("orders", **add),
    )
    assert one == other
    assert await third.controller.add_partitions("orders", **add) == one
    assert [len({*partition.replicas}) for partition in one.partitions] == [3, 3, 3]
    with pytest.raises(PreconditionFailed, match="has 3 partitions, not 1"):
        await third.controller.add_partitions("orders", **(add | {"count": 1}))
    for number in (1, 2):
        target = TopicPartition("orders", number)
        receipt = await third.gateway.append(target, batch_of(b"new"), acks=QUORUM, timeout_ms=5000)
        assert receipt.base_offset == 0


@in_virtual_time_with(ControlledCluster)
async def test_every_broker_refuses_invalid_requests_and_names_the_field(cluster: ControlledCluster) -> None:
    for broker in cluster.brokers.values():
        for name, factor, field in (("../x", 3, "name"), ("a", 2, "replication_factor")):
            with pytest.raises(InvalidRequest) as caught:
                await create(broker, name, factor=factor)
            assert caught.value.details["field"] == field
        with pytest.raises(InvalidRequest):
            await broker.controller.alter_config(
                "none", {"no.such": 1}, expected_version=None, timeout_ms=100
            )


@in_virtual_time_with(lambda: ControlledCluster(brokers=1))
async def test_waiting_for_a_version_that_does_not_come_ends_in_time(cluster: ControlledCluster) -> None:
    with pytest.raises(NoLeader):
        await cluster.any.controller.wait_for_version(10_000, 20)
    with pytest.raises(RaftlogError):
        await create(cluster.any, "orders", factor=3)


@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_metadata_never_goes_back_while_its_log_is_read_again(cluster: ControlledCluster) -> None:
    await create(cluster.any, "orders")
    controller = await cluster.controller_broker()
    broker = next(broker for broker in cluster.brokers.values() if broker is not controller)
    seen = [broker.controller.image.version]
    broker.controller.subscribe(lambda image: seen.append(image.version))
    await broker.supervisor.release(METADATA_GROUP)
    for checkpoint in Path(broker.directory, "__metadata").glob("snapshot*"):
        checkpoint.unlink()  # so that it is read from its beginning
    broker.supervisor.host(broker.metadata)
    await broker.supervisor.serving(METADATA_GROUP)
    later = await create(controller, "later")
    await broker.controller.wait_for_version(later.version, 5000)
    assert seen == sorted(seen)


async def test_a_broker_that_was_away_gets_the_image_in_place_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted_metadata, "METADATA_LOG", LogSettings(segment_bytes=1000))
    monkeypatch.setattr(HostedMetadata, "retention", SnapshotRetention(log_bytes_max=4000, entries_kept=3))
    async with ControlledCluster() as cluster:
        controller = await cluster.controller_broker()
        away = next(node for node in cluster.nodes if node != controller.node_id)
        cluster.network.isolate(away)
        for number in range(40):
            await controller.controller.create_topic(
                f"topic-{number}", partitions=1, replication_factor=1, config={}, timeout_ms=5000
            )
        for broker in cluster.brokers.values():
            await broker.retention.look()
        groups = {node: broker.host.groups[METADATA_GROUP] for node, broker in cluster.brokers.items()}
        assert groups[controller.node_id].log.first_index > 10
        assert groups[away].log.first_index == 0
        cluster.network.heal_all()
        behind = cluster.brokers[away].controller
        await eventually(lambda: "topic-39" in behind.image.topics)
        await cluster.brokers[away].retention.look()
        assert groups[away].log.first_index > 10
        assert len(behind.image.topics) == 40


# requirement: F2
async def test_a_broker_that_joins_gets_the_image_where_the_log_no_longer_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted_metadata, "METADATA_LOG", LogSettings(segment_bytes=1000))
    monkeypatch.setattr(HostedMetadata, "retention", SnapshotRetention(log_bytes_max=4000, entries_kept=3))
    async with ControlledCluster() as cluster:
        controller = await cluster.controller_broker()
        for number in range(40):
            await controller.controller.create_topic(
                f"topic-{number}", partitions=1, replication_factor=1, config={}, timeout_ms=5000
            )
        for broker in cluster.brokers.values():
            await broker.retention.look()
        joined = await cluster.join(4)
        await cluster.registered()
        group = joined.host.groups[METADATA_GROUP]
        assert group.log.first_index > 10
        assert len(joined.controller.image.topics) == 40
        await eventually(lambda: not group.is_rejoining)
        await cluster.join(5)
        await eventually(lambda: len(group.membership.voters) == 5)


async def _cut_off(cluster: ControlledCluster) -> tuple[ControlledBroker, ControlledBroker]:
    """The broker with the active controller, and one that reaches it through a third broker only."""
    leading = await cluster.controller_broker()
    outside = next(broker for broker in cluster if broker is not leading)
    cluster.network.cut_both(leading.node_id, outside.node_id)
    return leading, outside


# requirement: F1
@pytest.mark.parametrize("after_s", [0.0, 10.0])  # it hears of no leader any more, and counts as dead
async def test_a_broker_behind_a_broken_link_changes_and_confirms_the_metadata(after_s: float) -> None:
    async with ControlledCluster(brokers=4) as cluster:
        leading, outside = await _cut_off(cluster)
        await asyncio.sleep(after_s)
        controller, began = outside.controller, asyncio.get_running_loop().time()
        topic = await create(outside, "orders")
        assert controller.image.topics["orders"] == topic
        altered = await controller.alter_config(
            "orders", {"retention.ms": 60_000}, expected_version=topic.version, timeout_ms=5000
        )
        assert altered.config["retention.ms"] == 60_000
        assert (
            await controller.add_partitions("orders", 2, expected=1, expected_version=None, timeout_ms=5000)
        ).partitions[2:]
        later = await create(leading, "later")
        assert (await controller.current_image(5000)).topics["later"] == later
        gone = await controller.delete_topic("orders", expected_version=None, timeout_ms=5000)
        assert "orders" not in controller.image.topics
        assert asyncio.get_running_loop().time() < began + 5
        cluster.network.heal_all()
        await cluster.settled(gone)
        assert [*controller.image.topics] == ["later"]


# requirement: F1
async def test_a_broker_behind_a_broken_link_serves_a_new_topic() -> None:
    async with ControlledCluster(brokers=4) as cluster:
        leading, outside = await _cut_off(cluster)
        await asyncio.sleep(2)
        await create(leading, "orders")
        await outside.controller.current_image(5000)
        await outside.manager.settled()
        target = TopicPartition("orders", 0)
        receipt = await outside.gateway.append(target, batch_of(b"a"), acks=QUORUM, timeout_ms=5000)
        assert receipt.base_offset == 0


@in_virtual_time_with(lambda: ControlledCluster(brokers=4))
async def test_a_relayed_change_whose_answer_is_lost_is_in_doubt(cluster: ControlledCluster) -> None:
    leading, outside = await _cut_off(cluster)

    def isolate(image: MetadataImage) -> None:
        if image.brokers[NodeId(4)].draining:
            cluster.network.isolate(outside.node_id)

    leading.controller.subscribe(isolate)
    with pytest.raises(CommitUnknown):
        await outside.controller.change_broker(DrainBroker(NodeId(4)), 3000)
    assert leading.controller.image.brokers[NodeId(4)].draining
