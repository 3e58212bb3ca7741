"""Groups that are quiescent while a broker is down: its return, and what else happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from partitions.values import QUORUM, Acks, AcksKind
from raftlog.node.group_host import HostSettings
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.node_cluster import FIRST_GROUP, ClusterNode, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.raft_member import members

EVERY = Acks(AcksKind.EVERY)


@asynccontextmanager
async def quiescent(groups: int = 1) -> AsyncIterator[NodeCluster]:
    """Three brokers whose groups are quiescent; in the end all agree and are quiescent again."""
    cluster = NodeCluster(7, groups=groups, settings=HostSettings(quiet_ticks=20))
    await cluster.start()
    for group in cluster.group_ids:
        await cluster.leading(group).replicas[group].append(batch_of(b"1"), acks=QUORUM, timeout_ms=1000)
    await cluster.quiescent()
    yield cluster
    await cluster.settled()
    await cluster.quiescent()
    await cluster.stop()


async def left_alone(cluster: NodeCluster, gone: ClusterNode) -> None:
    """A broker crashes; the others elect leaders and become quiescent."""
    gone.crash()
    await cluster.until(lambda: all(cluster.leader(group) is not None for group in cluster.group_ids))
    await cluster.quiescent()


def in_sync(leader: ClusterNode) -> frozenset[int]:
    return leader.groups[FIRST_GROUP].in_sync(None, 10_000)


@in_virtual_time
async def test_a_quiescent_leader_counts_no_unreachable_replica_as_in_sync() -> None:
    async with quiescent() as cluster:
        leader, gone = cluster.leading(), cluster.followers()[0]
        assert in_sync(leader) == {1, 2, 3}
        await left_alone(cluster, gone)
        assert in_sync(leader) == {1, 2, 3} - {gone.node_id}
        await leader.replicas[FIRST_GROUP].append(batch_of(b"2"), acks=EVERY, timeout_ms=1000)
        assert in_sync(leader) == {1, 2, 3} - {gone.node_id}
        await cluster.quiescent()
        await gone.start()
        await cluster.until(lambda: in_sync(leader) == {1, 2, 3})


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("pause_s", [0, 0.2, 1, 20])
@in_virtual_time
async def test_replicas_of_a_broker_catch_up_however_soon_it_returns(pause_s: float, is_empty: bool) -> None:
    """A leader may be told of the loss when its peer has already returned."""
    async with quiescent(groups=100) as cluster:
        gone = cluster.followers()[0]
        gone.crash()
        if is_empty:
            gone.lose_disk()
        await asyncio.sleep(pause_s)
        await gone.start()
        await cluster.until(lambda: not any(group.is_rejoining for group in gone.groups.values()))


@in_virtual_time
async def test_a_follower_of_the_next_leader_knows_who_is_unreachable_when_it_leads() -> None:
    """It was still to be told of the loss when the others elected a leader."""
    async with quiescent(groups=100) as cluster:
        gone = cluster.followers()[0]
        await left_alone(cluster, gone)
        one, other = cluster.up
        for group in cluster.group_ids:
            leader, heir = (one, other) if one.groups[group].is_leader else (other, one)
            leader.groups[group].transfer_leadership(heir.node_id)
            await cluster.until(lambda group=group, heir=heir: cluster.leader(group) is heir)
        await cluster.quiescent()
        await gone.start()


@in_virtual_time
async def test_a_broker_that_starts_while_another_is_down_leads_quiescent_groups() -> None:
    async with quiescent(groups=10) as cluster:
        gone, restarted = cluster.followers()
        await left_alone(cluster, gone)
        restarted.crash()
        await restarted.start()
        await cluster.settled()
        other = next(broker for broker in cluster.up if broker is not restarted)
        for group in cluster.group_ids:
            if not restarted.groups[group].is_leader:
                other.groups[group].transfer_leadership(restarted.node_id)
        await cluster.until(lambda: all(group.is_ready for group in restarted.groups.values()))
        await cluster.quiescent()
        await gone.start()


@in_virtual_time
async def test_a_former_member_that_returns_is_no_longer_unreachable() -> None:
    """Added again, it must not be left out."""
    cluster = NodeCluster(7, nodes=4, voters=3)
    await cluster.start()
    spare = cluster.brokers[NodeId(4)]
    await cluster.leading().groups[FIRST_GROUP].change_membership(members(1, 2, 3, learners=[4]))
    await cluster.quiescent()
    spare.crash()
    await cluster.quiescent()
    await cluster.leading().groups[FIRST_GROUP].change_membership(members(1, 2, 3))
    await spare.start()
    await asyncio.sleep(1)
    assert not any(broker.groups[FIRST_GROUP].unreachable for broker in cluster.up)
    await cluster.stop()
