"""A leader whose disk has no room hands over to a broker that has some; without one, nothing moves."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM
from raftlog.errors import StorageFull
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of

GROUP = GroupId(1)


async def started(seed: int) -> tuple[NodeCluster, ClusterNode]:
    """A cluster whose leader has written one batch."""
    cluster = NodeCluster(seed)
    await cluster.start()
    leader = cluster.leading()
    await leader.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    await cluster.settled()
    return cluster, leader


async def write(cluster: NodeCluster) -> None:
    """One batch by the leader of the moment."""
    await cluster.until(lambda: cluster.leader() is not None)
    await cluster.leading().replicas[GROUP].append(batch_of(b"1"), acks=QUORUM, timeout_ms=1000)


# requirement: N4
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_a_leader_without_room_hands_over_to_a_broker_with_room(seed: int) -> None:
    cluster, full = await started(seed)
    also_full, free = cluster.followers()
    full.has_room = also_full.has_room = False
    with pytest.raises(StorageFull):
        await full.replicas[GROUP].append(batch_of(b"1"), acks=QUORUM, timeout_ms=500)
    await cluster.until(lambda: free.groups[GROUP].is_ready, within_s=3)
    await write(cluster)
    term = free.groups[GROUP].term
    await asyncio.sleep(30)
    assert (free.groups[GROUP].is_leader, free.groups[GROUP].term) == (True, term)
    await cluster.stop()


@in_virtual_time
async def test_a_leader_that_cannot_append_hands_over() -> None:
    """Its log finds no descriptor, or no block, although the disk reports room."""
    cluster, full = await started(5)
    full.filesystem.capacity_bytes = full.filesystem.used_bytes
    full.groups[GROUP].propose(full.replicas[GROUP]._rules.validated(batch_of(b"1")))
    await cluster.until(lambda: cluster.leader() not in (None, full), within_s=3)
    await write(cluster)
    full.filesystem.capacity_bytes = None
    await cluster.settled()
    await cluster.stop()


# requirement: N4
@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_where_no_broker_has_room_the_leader_stays(seed: int) -> None:
    """They notice it one after another."""
    cluster, leader = await started(seed)
    term = leader.groups[GROUP].term
    for broker in cluster.up:
        broker.has_room = False
        await asyncio.sleep(0.25)
    await asyncio.sleep(30)
    assert (leader.groups[GROUP].is_leader, leader.groups[GROUP].term) == (True, term)
    for broker in cluster.up:
        broker.has_room = True
    await write(cluster)
    assert leader.groups[GROUP].term == term
    await cluster.stop()


@in_virtual_time
async def test_a_short_lack_of_room_moves_no_leadership() -> None:
    cluster, leader = await started(6)
    term = leader.groups[GROUP].term
    for _ in range(10):
        leader.has_room = False
        await asyncio.sleep(0.6)
        leader.has_room = True
        await asyncio.sleep(0.6)
    assert (leader.groups[GROUP].is_leader, leader.groups[GROUP].term) == (True, term)
    await cluster.stop()


@in_virtual_time
async def test_a_broker_that_has_room_again_may_lead_again() -> None:
    cluster, first = await started(7)
    first.has_room = False
    await cluster.until(lambda: cluster.leader() not in (None, first), within_s=3)
    second = cluster.leading()
    (third,) = (broker for broker in cluster.up if broker not in (first, second))
    first.has_room = True
    await asyncio.sleep(2)
    second.has_room = third.has_room = False
    await cluster.until(lambda: first.groups[GROUP].is_ready, within_s=3)
    await write(cluster)
    await cluster.stop()
