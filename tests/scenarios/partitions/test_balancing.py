"""Replicas and leaders are balanced by real controllers, groups and moves, and brokers of two levels meet."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from partitions.metadata.active import ControllerSettings
from partitions.metadata.balancer import BalancingSettings
from partitions.metadata.commands import DecommissionBroker, DrainBroker, EndPlan, StartPlan
from partitions.metadata.features import NEWEST
from partitions.metadata.image import MetadataImage
from raftlog.errors import Conflict, PreconditionFailed
from raftlog.types import METADATA_GROUP, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import CONTROLLER, ControlledCluster
from tests.helpers.moving import produce, values
from tests.helpers.virtual_time import eventually

AFTER_S = 1.5


def settings(moves_max: int = 2, **changes: object) -> ControllerSettings:
    balancing = BalancingSettings(moves_max=moves_max, after_ms=round(AFTER_S * 1000))
    return replace(CONTROLLER, balancing=balancing, broker_dead_ms=20_000, **changes)  # type: ignore[arg-type]


def newest(cluster: ControlledCluster) -> MetadataImage:
    return max((broker.controller.image for broker in cluster), key=lambda image: image.version)


def rows(cluster: ControlledCluster) -> list[tuple[NodeId, ...]]:
    image = newest(cluster)
    return [part.target_replicas for topic in image.topics.values() for part in topic.partitions]


def moving(cluster: ControlledCluster) -> int:
    image = newest(cluster)
    return sum(bool(part.target) for topic in image.topics.values() for part in topic.partitions)


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
    with pytest.raises(Conflict, match=r"brokers \[3\] are not alive, draining"):
        await cluster.any.controller.propose_plan(5000)
    await cluster.any.controller.change_broker(DrainBroker(NodeId(3), False), 5000)
    await eventually(lambda: is_even(cluster), within_s=120)


@in_virtual_time_with(lambda: ControlledCluster(brokers=4, settings=settings(healing_moves_max=1)))
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
    with pytest.raises(Conflict, match="being carried out"):
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
    with pytest.raises(PreconditionFailed, match="ended already"):
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
        await cluster.stop(node)
        await cluster.start(node)
        await cluster.registered()
    await eventually(lambda: newest(cluster).feature_level == NEWEST, within_s=60)
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
