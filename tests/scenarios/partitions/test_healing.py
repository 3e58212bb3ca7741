"""Replicas of dead brokers are restored, in their racks, and replicas and leaders are balanced."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from partitions.metadata.active import NO_ROOM_MS, ControllerSettings
from partitions.metadata.balancer import BalancingSettings
from partitions.metadata.commands import DecommissionBroker, DrainBroker, EndPlan, StartPlan
from partitions.metadata.features import NEWEST
from partitions.metadata.healing import HealingCounts
from partitions.metadata.image import MetadataImage, PartitionInfo
from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import Conflict, PreconditionFailed
from raftlog.types import METADATA_GROUP, NodeId, TopicPartition
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import CONTROLLER, ControlledBroker, ControlledCluster
from tests.helpers.moving import holds, info, led_by, produce, values
from tests.helpers.orders import batch_of, values_of
from tests.helpers.virtual_time import VirtualLoop, eventually

DEAD_S = 2.0
LOOK_S = CONTROLLER.duty_interval_ms / 1000  # the first look at which a broker is not heard counts whole
HEALS = replace(CONTROLLER, restore_after_ms=round(DEAD_S * 1000), restore_moves_max=2)


def healing(brokers: int) -> ControlledCluster:
    return ControlledCluster(brokers=brokers, settings=HEALS)


def now() -> float:
    return asyncio.get_running_loop().time()


def partitions(image: MetadataImage) -> list[PartitionInfo]:
    return [partition for topic in image.topics.values() for partition in topic.partitions]


def moving(cluster: ControlledCluster) -> int:
    """Moves under way."""
    image = max((broker.controller.image for broker in cluster), key=lambda image: image.version)
    return sum(bool(partition.target) for partition in partitions(image))


def is_restored(cluster: ControlledCluster, *dead: int) -> bool:
    """Whether no live broker knows a replica on these, or a move."""
    return all(
        not partition.target and not set(partition.replicas) & set(dead)
        for broker in cluster
        for partition in partitions(broker.controller.image)
    )


def is_controller(cluster: ControlledCluster, node: NodeId) -> bool:
    return cluster.brokers[node].host.groups[METADATA_GROUP].is_ready


def other_than(cluster: ControlledCluster, avoided: ControlledBroker) -> NodeId:
    return next(node for node in reversed(cluster.nodes) if node != avoided.node_id)


# requirement: F1
@in_virtual_time_with(lambda: healing(4))
async def test_replicas_of_a_dead_broker_are_restored_and_nothing_is_lost(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await cluster.create("__offsets", 3)
    await produce(cluster, b"a")
    dead = other_than(cluster, await cluster.controller_broker())
    began = now()
    await cluster.stop(dead)
    await eventually(lambda: moving(cluster) > 0)
    assert now() - began >= DEAD_S - LOOK_S
    leader = await cluster.controller_broker()
    counted = [broker.controller.healing for broker in cluster if broker is not leader]
    assert counted == [HealingCounts()] * len(counted), "the active controller alone counts"
    assert leader.controller.healing.moving == moving(cluster)
    assert leader.controller.healing.to_restore > 0
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, moving(cluster))
        return is_restored(cluster, dead)

    await eventually(done)
    assert leader.controller.healing == HealingCounts()
    assert most == HEALS.restore_moves_max
    assert all(len(set(one.replicas)) == 3 for one in partitions(cluster.any.controller.image))
    await produce(cluster, b"b")
    assert await values(cluster.any) == [b"a", b"b"]
    await cluster.start(dead)
    await eventually(lambda: not holds(cluster, dead))
    assert is_restored(cluster, dead), "replicas do not move back by themselves"


# requirement: F1
@in_virtual_time_with(lambda: healing(4))
async def test_a_leader_that_only_the_controller_does_not_hear_hands_over(cluster: ControlledCluster) -> None:
    """One link is broken for as long as the test lasts; both of its ends reach everybody else."""
    await cluster.create("orders")
    controller = await cluster.controller_broker()
    cut_off = next(
        broker for broker in cluster if broker is not controller and holds(cluster, broker.node_id)
    )
    await led_by(cluster.any, cut_off.node_id)
    await produce(cluster, b"a")
    cluster.network.cut_both(cut_off.node_id, controller.node_id)
    await eventually(lambda: cut_off.host.declines(cut_off.node_id))
    leader = await cluster.leader(other_than=cut_off.node_id)
    place = TopicPartition("orders", 0)
    for broker in cluster:
        await broker.gateway.append(place, batch_of(b"by all"), acks=QUORUM, timeout_ms=2000)

    def restored() -> bool:
        [found] = controller.controller.image.topics["orders"].partitions
        return not found.target and cut_off.node_id not in found.replicas

    await eventually(restored)
    assert await values(leader) == [b"a", *[b"by all"] * 4]
    cluster.network.heal_all()
    await eventually(lambda: not cut_off.host.declines(cut_off.node_id))


@in_virtual_time_with(lambda: healing(5))
async def test_without_a_controller_no_leadership_moves(cluster: ControlledCluster) -> None:
    """All brokers are cut off from a controller that is gone: none is a better leader than the other."""
    topic = await cluster.create("orders")
    kept = topic.partitions[0].replicas[:2]
    for node in set(cluster.nodes) - set(kept):
        await cluster.stop(node)
    leader = await cluster.leader()
    term = leader.orders.group.term
    await eventually(lambda: all(broker.host.declines(broker.node_id) for broker in cluster))
    await asyncio.sleep(5)
    assert leader.orders.group.is_leader
    assert leader.orders.group.term == term


@in_virtual_time_with(lambda: healing(4))
async def test_what_has_not_begun_is_not_begun_when_the_broker_returns(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 12)
    dead = other_than(cluster, await cluster.controller_broker())
    await cluster.stop(dead)
    await eventually(lambda: moving(cluster) > 0)
    await cluster.start(dead)
    await cluster.registered()
    await eventually(lambda: moving(cluster) == 0)
    await asyncio.sleep(2 * DEAD_S)
    rows = [partition.replicas for partition in partitions(cluster.any.controller.image)]
    before = 12 * 3 // 4
    assert 0 < sum(dead in row for row in rows) < before
    assert all(len(set(row)) == 3 for row in rows)


@in_virtual_time_with(lambda: healing(5))
async def test_a_new_controller_counts_silence_from_its_election(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 5)
    first = await cluster.controller_broker()
    dead = other_than(cluster, first)
    await cluster.stop(dead)
    await asyncio.sleep(0.9 * DEAD_S)
    began = now()
    await cluster.stop(first.node_id)
    await cluster.controller_broker()
    await asyncio.sleep(0.9 * DEAD_S)
    assert moving(cluster) == 0, "neither the former controller nor the dead one was silent long enough"
    await eventually(lambda: moving(cluster) > 0)
    assert now() - began >= DEAD_S


@in_virtual_time_with(lambda: healing(4))
async def test_a_pause_of_all_brokers_is_nobodys_silence(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 4)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.skip(10 * DEAD_S)
    await asyncio.sleep(DEAD_S)
    assert moving(cluster) == 0
    assert all(len(one.replicas) == 3 for one in partitions(cluster.any.controller.image))
    await eventually(lambda: all(b.alive for b in cluster.any.controller.image.brokers.values()))


@in_virtual_time_with(lambda: healing(4))
async def test_a_controller_counts_silence_from_its_second_election(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 4)
    first = await cluster.controller_broker()
    second, dead = [node for node in cluster.nodes if node != first.node_id][:2]
    await cluster.stop(dead)
    await asyncio.sleep(0.6 * DEAD_S)
    for successor in (second, first.node_id):
        leading = await cluster.controller_broker()
        leading.host.groups[METADATA_GROUP].transfer_leadership(successor)
        await eventually(partial(is_controller, cluster, successor))
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.6 * DEAD_S)
    assert moving(cluster) == 0
    await eventually(lambda: moving(cluster) > 0)


# requirement: F3
@in_virtual_time_with(lambda: ControlledCluster(brokers=4, settings=replace(HEALS, restore_moves_max=0)))
async def test_a_decommissioned_broker_gives_up_its_replicas(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 4)
    leader = await cluster.controller_broker()
    removed = other_than(cluster, leader)
    await leader.controller.change_broker(DecommissionBroker(removed), timeout_ms=5000)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, moving(cluster))
        return is_restored(cluster, removed)

    await eventually(done)
    assert most == 1, "one at a time"
    await eventually(lambda: not holds(cluster, removed))


@in_virtual_time_with(lambda: healing(4))
async def test_a_broker_without_room_gets_nothing_until_it_has_some(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    leader = await cluster.controller_broker()
    replicas = info(cluster.any).replicas
    spare = next(broker for broker in cluster if broker.node_id not in replicas)
    spare.host.has_room = lambda: False
    await asyncio.sleep(NO_ROOM_MS / 1000 + 2)
    leader = await cluster.controller_broker()
    dead = next(node for node in replicas if node != leader.node_id)
    await cluster.stop(dead)
    await asyncio.sleep(2 * DEAD_S)
    assert info(leader).target_replicas == replicas
    spare.host.has_room = lambda: True
    await eventually(lambda: is_restored(cluster, dead))
    assert spare.node_id in info(leader).replicas


def refuses(cluster: ControlledCluster, node: NodeId) -> None:
    """The broker's folder is not writable for new replicas."""

    def deny(what: str, path: str) -> None:
        if what == "make" and "/orders-" in path:
            raise PermissionError(errno.EACCES, "the folder is not writable on purpose", path)

    cluster.disks[node].on_wait = deny


# requirement: F1
@in_virtual_time_with(lambda: healing(5))
async def test_a_broker_that_cannot_open_replicas_does_not_stop_healing(cluster: ControlledCluster) -> None:
    unable = other_than(cluster, await cluster.controller_broker())
    await cluster.any.controller.change_broker(DrainBroker(unable, True), timeout_ms=5000)
    await cluster.create("orders", 8)
    await cluster.any.controller.change_broker(DrainBroker(unable, False), timeout_ms=5000)
    leader = await cluster.controller_broker()
    refuses(cluster, unable)
    dead = next(node for node in cluster.nodes if node not in (unable, leader.node_id))
    await cluster.stop(dead)
    await eventually(lambda: moving(cluster) == HEALS.restore_moves_max)
    towards = [one.target for one in partitions(cluster.any.controller.image) if one.target]
    assert all(unable in target for target in towards), "it holds fewest"
    await eventually(lambda: is_restored(cluster, dead), within_s=60)
    rows = [one.replicas for one in partitions(cluster.any.controller.image)]
    assert all(len({*row}) == 3 and unable not in row for row in rows)
    refused = await cluster.any.controller.refused(5000)
    assert {report.broker_id for report in refused} == {unable}
    assert all("not writable on purpose" in report.reason for report in refused)


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
async def test_replicas_of_a_dead_broker_are_restored_in_its_rack() -> None:
    heals = replace(CONTROLLER, restore_after_ms=2_000, restore_moves_max=4)
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


AFTER_S = 1.5


def settings(moves_max: int = 2, **changes: object) -> ControllerSettings:
    balancing = BalancingSettings(moves_max=moves_max, after_ms=round(AFTER_S * 1000))
    return replace(CONTROLLER, balancing=balancing, restore_after_ms=20_000, **changes)  # type: ignore[arg-type]


def newest(cluster: ControlledCluster) -> MetadataImage:
    return max((broker.controller.image for broker in cluster), key=lambda image: image.version)


def rows(cluster: ControlledCluster) -> list[tuple[NodeId, ...]]:
    image = newest(cluster)
    return [part.target_replicas for topic in image.topics.values() for part in topic.partitions]


def spread(counts: Counter[NodeId], cluster: ControlledCluster) -> int:
    image = newest(cluster)
    numbers = [counts[node] for node in image.brokers if image.is_in_use(node)]
    return max(numbers) - min(numbers)


def is_even(cluster: ControlledCluster) -> bool:
    """Whether replicas and preferred leaders are even, and no replica moves."""
    placed = rows(cluster)
    replicas = Counter(node for row in placed for node in row)
    preferred = Counter(row[0] for row in placed)
    return not moving(cluster) and max(spread(replicas, cluster), spread(preferred, cluster)) <= 1


def led(cluster: ControlledCluster) -> Counter[NodeId]:
    """How many partitions each broker leads."""
    return Counter(
        broker.node_id
        for broker in cluster
        for replica in broker.manager.replicas.values()
        if replica.group.is_ready
    )


def leads_as_preferred(cluster: ControlledCluster) -> bool:
    image = newest(cluster)
    return all(
        cluster.brokers[part.replicas[0]].manager.replicas[topic.name, part.partition].group.is_ready
        for topic in image.topics.values()
        for part in topic.partitions
    )


# requirement: F2
@in_virtual_time_with(lambda: ControlledCluster(settings=settings()))
async def test_a_broker_that_joins_takes_its_share_and_nothing_is_lost(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 8)
    await produce(cluster, b"a")
    await cluster.join(4)
    await cluster.registered()
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, moving(cluster))
        assert all(len({*row}) == 3 for row in rows(cluster))
        return is_even(cluster) and newest(cluster).plan is None

    await eventually(done, within_s=120)
    assert most == 2, "at a bounded rate"
    await eventually(lambda: leads_as_preferred(cluster), within_s=120)
    assert sorted(led(cluster).values()) == [2, 2, 2, 2]
    await produce(cluster, b"b")
    assert await values(cluster.any) == [b"a", b"b"]
    version = newest(cluster).version
    await asyncio.sleep(6 * AFTER_S)
    assert newest(cluster).version == version, "it is over"


@in_virtual_time_with(lambda: ControlledCluster(settings=settings()))
async def test_leaderships_return_to_a_broker_that_was_away(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 6)
    await eventually(lambda: leads_as_preferred(cluster), within_s=60)
    away = (await cluster.leader()).node_id
    await cluster.stop(away)
    await eventually(lambda: sum(led(cluster).values()) == 6)
    await cluster.start(away)
    await cluster.registered()
    began = asyncio.get_running_loop().time()
    await eventually(lambda: led(cluster)[away] == 2, within_s=60)
    assert asyncio.get_running_loop().time() - began >= 0.9 * AFTER_S


@in_virtual_time_with(lambda: ControlledCluster(settings=settings()))
async def test_nothing_is_balanced_while_a_broker_is_missing_or_drained(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 8)
    await cluster.join(4)
    await cluster.registered()
    await cluster.any.controller.change_broker(DrainBroker(NodeId(3)), 5000)
    before = rows(cluster)
    await asyncio.sleep(4 * AFTER_S)
    assert rows(cluster) == before
    with pytest.raises(Conflict, match=r"brokers \[3\] are down, draining"):
        await cluster.any.controller.propose_plan(5000)
    await cluster.any.controller.change_broker(DrainBroker(NodeId(3), False), 5000)
    await eventually(lambda: is_even(cluster), within_s=120)


@in_virtual_time_with(lambda: ControlledCluster(brokers=4, settings=settings(restore_moves_max=1)))
async def test_healing_goes_before_balancing(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 8)
    await cluster.join(5)
    await cluster.registered()
    await cluster.any.controller.change_broker(DecommissionBroker(NodeId(1)), 5000)
    seen: list[bool] = []

    def emptied() -> bool:
        left = any(NodeId(1) in row for row in rows(cluster))
        if left and newest(cluster).plan is not None:
            seen.append(True)
        return not left and not moving(cluster)

    await eventually(emptied, within_s=120)
    assert not seen, "no plan begins while replicas leave a broker"


@in_virtual_time_with(lambda: ControlledCluster(settings=settings(moves_max=0)))
async def test_another_controller_continues_a_plan(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 8)
    await cluster.join(4)
    await cluster.registered()
    await asyncio.sleep(4 * AFTER_S)
    assert all(NodeId(4) not in row for row in rows(cluster)), "automatic balancing is off"
    asked = cluster.brokers[NodeId(2)].controller
    proposal = await asked.propose_plan(5000)
    assert len([move for move in proposal.moves if NodeId(4) in move.target]) == 6
    await asked.change_plan(StartPlan(proposal.moves, proposal.made_at), 5000)
    with pytest.raises(Conflict, match="in progress"):
        await asked.change_plan(StartPlan(proposal.moves, proposal.made_at), 5000)
    await eventually(lambda: moving(cluster) > 0)
    first = await cluster.controller_broker()
    successor = next(
        n for n in sorted(first.host.groups[METADATA_GROUP].membership.voters) if n != first.node_id
    )
    first.host.groups[METADATA_GROUP].transfer_leadership(successor)
    await eventually(lambda: is_even(cluster) and newest(cluster).plan is None, within_s=120)
    assert {move.target for move in proposal.moves} <= {*rows(cluster)}
    with pytest.raises(PreconditionFailed, match="out of date"):
        await asked.change_plan(StartPlan(proposal.moves, proposal.made_at), 5000)


@in_virtual_time_with(lambda: ControlledCluster(settings=settings(moves_max=0)))
async def test_a_cancelled_plan_begins_no_further_move(cluster: ControlledCluster) -> None:
    await cluster.create("orders", 8)
    await cluster.join(4)
    await cluster.registered()
    controller = cluster.any.controller
    proposal = await controller.propose_plan(5000)
    image = await controller.change_plan(StartPlan(proposal.moves, proposal.made_at), 5000)
    assert image.plan is not None
    await eventually(lambda: moving(cluster) == 1)
    await controller.change_plan(EndPlan(image.plan.version), 5000)
    await eventually(lambda: moving(cluster) == 0)
    await asyncio.sleep(2 * AFTER_S)
    assert 0 < sum(NodeId(4) in row for row in rows(cluster)) < 6
    with pytest.raises(PreconditionFailed, match="already ended"):
        await controller.change_plan(EndPlan(image.plan.version), 5000)


@in_virtual_time_with(lambda: ControlledCluster(settings=settings(feature_level=1)))
async def test_the_feature_level_rises_after_the_last_broker(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    assert newest(cluster).feature_level == 1
    with pytest.raises(Conflict, match="needs feature level 2"):
        await cluster.any.controller.change_plan(StartPlan((), 0), 5000)
    for node in cluster.nodes:
        await asyncio.sleep(2.5)
        assert newest(cluster).feature_level == 1, "brokers of two releases"
        await produce(cluster, b"x")
        cluster.settings_of[node] = settings()
        await cluster.restart(node)
        await cluster.registered()
        assert {info.https_url for info in newest(cluster).brokers.values()} == {""}, "it would be dropped"
    await eventually(lambda: newest(cluster).feature_level == NEWEST, within_s=60)
    await eventually(
        lambda: (
            [info.https_url for info in newest(cluster).brokers.values()]
            == [f"https://127.0.0.1:{8000 + node}" for node in newest(cluster).brokers]
        ),
        within_s=10,
    )
    cluster.settings_of[NodeId(3)] = settings(feature_level=1)
    await cluster.stop(NodeId(3))
    await cluster.start(NodeId(3))
    await asyncio.sleep(3.0)
    assert not cluster.brokers[NodeId(3)].controller.registration.is_registered
    await produce(cluster, b"y")
    cluster.settings_of[NodeId(3)] = settings()
    await cluster.stop(NodeId(3))
    await cluster.start(NodeId(3))
    await cluster.registered()
