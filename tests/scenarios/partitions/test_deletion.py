"""A leader lets a broker go, and a broker says that it is prepared, by nothing that is stale."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from partitions.metadata.commands import ReplicasChanged
from partitions.metadata.move_planner import MoveReplicas
from partitions.routing import rpc
from raftlog.core.membership import Membership
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.node.rpc import decode_body, encode_body
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import ControlledBroker, ControlledCluster
from tests.helpers.moving import create, info, produce
from tests.helpers.orders import ORDERS
from tests.helpers.virtual_time import eventually


async def asks(
    asker: ControlledBroker, asked: ControlledBroker, what: str, *, version: int = 0, group: int = 0
) -> bool:
    """Yes or no."""
    partition = info(asked)
    place = (ORDERS, GroupId(partition.group_id + group))
    kind = rpc.MayDelete if what == rpc.MAY_DELETE else rpc.Prepared
    head = encode_body(kind(place, partition.version + version))
    answer, _ = await asker.host.calls.call(asked.node_id, what, head, timeout_ms=3000)
    if what == rpc.MAY_DELETE:
        return decode_body(answer, rpc.DeleteAnswer).is_permitted
    return decode_body(answer, rpc.PreparedAnswer).is_open


@asynccontextmanager
async def leader_and_stranger() -> AsyncIterator[
    tuple[ControlledCluster, ControlledBroker, ControlledBroker]
]:
    """Of four brokers three hold a partition: its leader, and the fourth. Nothing moves."""
    async with ControlledCluster(brokers=4) as cluster:
        _, outside = await create(cluster)
        await produce(cluster, b"a")
        for broker in cluster.brokers.values():
            await broker.reassigner.stop()
        yield cluster, await cluster.leader(), cluster.brokers[outside]


async def may_go(
    stranger: ControlledBroker, led: ControlledBroker, *, version: int = 0, group: int = 0
) -> bool:
    return await asks(stranger, led, rpc.MAY_DELETE, version=version, group=group)


# requirement: F2
@in_virtual_time
async def test_a_stranger_may_go_and_not_by_metadata_that_the_leader_has_not_seen() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        assert await may_go(stranger, led)
        assert not await may_go(stranger, led, version=1000)
        with pytest.raises(RaftlogError):
            await may_go(stranger, led, group=1)


@in_virtual_time
async def test_a_learner_may_not_go_whatever_the_metadata_says() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        group = led.manager.replicas["orders", 0].group
        await group.change_membership(Membership(group.membership.voters, frozenset({stranger.node_id})))
        assert not await may_go(stranger, led)


@in_virtual_time
async def test_who_is_wanted_may_not_go_although_its_group_does_not_know_it() -> None:
    async with leader_and_stranger() as (_, led, stranger):
        await led.admin.change_replicas(MoveReplicas("orders", 0, add=stranger.node_id), 5000)
        assert not await may_go(stranger, led)


@in_virtual_time
async def test_nobody_goes_by_a_membership_that_is_not_committed() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        group = led.manager.replicas["orders", 0].group
        voters = group.membership.voters
        learning = Membership(voters, frozenset({stranger.node_id}))
        await group.change_membership(learning)
        for broker in cluster.brokers.values():
            broker.disk.clear()
        leaving = asyncio.ensure_future(group.change_membership(Membership(voters)))
        await eventually(lambda: group.membership == Membership(voters))
        assert not await may_go(stranger, led)
        for broker in cluster.brokers.values():
            broker.disk.set()
        await leaving
        assert await may_go(stranger, led)


@in_virtual_time
async def test_a_leader_that_hears_no_majority_lets_nobody_go() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        for other in set(cluster.nodes) - {led.node_id, stranger.node_id}:
            cluster.network.cut_both(led.node_id, other)
        with pytest.raises(RaftlogError):
            await may_go(stranger, led)


async def is_prepared(
    led: ControlledBroker, asked: ControlledBroker, *, version: int = 0, group: int = 0
) -> bool:
    return await asks(led, asked, rpc.PREPARED, version=version, group=group)


# requirement: F2
@in_virtual_time
async def test_a_broker_is_prepared_with_the_very_replica_by_metadata_as_new() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        topic = await led.admin.change_replicas(MoveReplicas("orders", 0, add=stranger.node_id), 5000)
        await cluster.settled(topic.version)
        assert await is_prepared(led, stranger)
        assert not await is_prepared(led, stranger, version=1000)
        assert not await is_prepared(led, stranger, group=1)
        stranger.manager.replicas["orders", 0].group.stop(OSError(5, "on purpose"))
        assert not await is_prepared(led, stranger)


@in_virtual_time
async def test_a_broker_whose_replica_leaves_is_not_prepared() -> None:
    """The metadata wants it no more, and its group names it still, so it is open."""
    async with leader_and_stranger() as (cluster, led, _):
        partition = info(led)
        leaving = next(node for node in partition.replicas if node != led.node_id)
        rest = tuple(node for node in partition.replicas if node != leaving)
        topic_id = led.controller.image.topics["orders"].topic_id
        report = ReplicasChanged(
            "orders", topic_id, 0, partition.group_id, rest, 1000, target_version=partition.version
        )
        await led.controller.change_replicas(report, 5000)
        await cluster.settled(led.controller.image.version)
        assert ("orders", 0) in cluster.brokers[leaving].manager.replicas
        assert not await is_prepared(led, cluster.brokers[leaving])


# requirement: M3
@in_virtual_time
async def test_a_broker_says_that_it_has_no_replica_only_by_confirmed_metadata() -> None:
    async with leader_and_stranger() as (cluster, led, stranger):
        held = info(led).group_id
        await eventually(lambda: _answers(stranger, held))
        assert stranger.manager.directory_of(held) is None
        nodes = [*cluster.brokers]
        for node in nodes:
            await cluster.stop(node)
        alone = await cluster.start(nodes[0])
        with pytest.raises(InvalidRequest, match="it is not known yet"):
            alone.manager.directory_of(GroupId(held + 1))
        for node in nodes[1:]:
            await cluster.start(node)
        await eventually(lambda: _answers(alone, GroupId(held + 1)))
        assert alone.manager.directory_of(GroupId(held + 1)) is None


def _answers(broker: ControlledBroker, group: GroupId) -> bool:
    with contextlib.suppress(InvalidRequest):
        broker.manager.directory_of(group)
        return True
    return False
