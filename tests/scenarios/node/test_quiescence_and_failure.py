"""Quiescent groups, and what unquiesces them: a dead broker, a silent one, a broken link, a failed disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import pytest

from partitions.values import QUORUM
from raftlog.errors import CommitUnknown
from raftlog.node.group_host import HostSettings
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import VirtualLoop

GROUP = GroupId(1)
ELECTED_WITHIN_S = 2.5  # silence, then the longest draw of an election time-out, then the election


@asynccontextmanager
async def quiescent(*, groups: int = 1) -> AsyncIterator[NodeCluster]:
    """Three brokers whose groups are quiescent, and are so again in the end."""
    cluster = NodeCluster(7, groups=groups, settings=HostSettings(quiet_ticks=20))
    await cluster.start()
    await cluster.leading().replicas[GROUP].append(batch_of(b"first"), acks=QUORUM, timeout_ms=1000)
    await cluster.quiescent()
    yield cluster
    await cluster.settled()
    await cluster.quiescent()
    await cluster.stop()


@in_virtual_time_with(quiescent)
async def test_a_quiescent_group_replaces_a_dead_leader(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    leader.crash()
    assert await cluster.until(lambda: cluster.leader() is not None) < ELECTED_WITHIN_S
    assert cluster.leading() is not leader
    await leader.start()


@in_virtual_time_with(quiescent)
async def test_a_leader_that_restarts_at_once_is_replaced(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    leader.crash()
    await leader.start()
    assert await cluster.until(lambda: cluster.leader() is not None) < ELECTED_WITHIN_S


@in_virtual_time_with(quiescent)
async def test_a_quiescent_leader_that_says_nothing_any_more_is_replaced(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    others = [broker for broker in cluster.up if broker is not leader]
    for other in others:  # half-open: nothing arrives and nothing breaks
        cluster.network.stall(leader.node_id, other.node_id)
        cluster.network.stall(other.node_id, leader.node_id)
    took_s = await cluster.until(lambda: any(other.groups[GROUP].is_ready for other in others))
    assert took_s < 0.75 + ELECTED_WITHIN_S
    cluster.network.heal_all()


@in_virtual_time_with(quiescent)
async def test_one_broken_link_of_a_quiescent_group_changes_nothing_that_lasts(cluster: NodeCluster) -> None:
    leader, follower = cluster.leading(), cluster.followers()[0]
    term = leader.groups[GROUP].term
    cluster.network.cut_both(leader.node_id, follower.node_id)
    await asyncio.sleep(5)
    assert cluster.leading() is leader
    cluster.network.heal_all()
    await cluster.settled()
    assert (cluster.leading(), leader.groups[GROUP].term) == (leader, term)


@in_virtual_time_with(lambda: quiescent(groups=20))
async def test_a_process_that_was_held_up_takes_no_peer_for_silent(cluster: NodeCluster) -> None:
    terms = [broker.groups[group].term for broker in cluster.up for group in broker.groups]
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    for _ in range(3):
        loop.skip(30.0)
        for _ in range(100):
            await asyncio.sleep(0.01)
            assert all(group.is_quiescent for broker in cluster.up for group in broker.groups.values())
    assert terms == [broker.groups[group].term for broker in cluster.up for group in broker.groups]


@in_virtual_time_with(lambda: quiescent(groups=20))
async def test_groups_become_quiescent_with_slow_replies(cluster: NodeCluster) -> None:
    for sender, receiver in permutations(cluster.up, 2):
        cluster.network.delay(sender.node_id, receiver.node_id, 0.15)
    terms = [broker.groups[group].term for broker in cluster.up for group in broker.groups]
    await cluster.leading().replicas[GROUP].append(batch_of(b"second"), acks=QUORUM, timeout_ms=5000)
    assert not cluster.leading().groups[GROUP].is_quiescent
    await cluster.quiescent(within_s=5)
    assert terms == [broker.groups[group].term for broker in cluster.up for group in broker.groups]


@in_virtual_time_with(lambda: quiescent(groups=100))
async def test_groups_are_quiescent_while_a_broker_is_down(cluster: NodeCluster) -> None:
    gone = cluster.followers()[0]
    gone.crash()
    await cluster.until(lambda: all(leads_anew(cluster, group) for group in cluster.up[0].groups))
    await cluster.quiescent(within_s=15)
    leader = cluster.leading()
    await leader.replicas[GROUP].append(batch_of(b"second"), acks=QUORUM, timeout_ms=1000)
    assert not leader.groups[GROUP].is_quiescent
    await cluster.quiescent(within_s=5)
    await gone.start()
    last = leader.groups[GROUP].log.last_index
    await cluster.until(lambda: gone.groups[GROUP].log.last_index == last)


def leads_anew(cluster: NodeCluster, group: GroupId) -> bool:
    """Whether a broker that runs leads the group."""
    return any(broker.groups[group].is_leader for broker in cluster.up)


@in_virtual_time_with(quiescent)
async def test_followers_behind_a_broken_link_catch_up_after_quiescence(cluster: NodeCluster) -> None:
    leader, follower = cluster.leading(), cluster.followers()[0]
    cluster.network.cut_both(leader.node_id, follower.node_id)
    await leader.replicas[GROUP].append(batch_of(b"second"), acks=QUORUM, timeout_ms=1000)
    await asyncio.sleep(20)
    cluster.network.heal_all()
    last = leader.groups[GROUP].log.last_index
    await cluster.until(lambda: follower.groups[GROUP].log.last_index == last)


@pytest.mark.parametrize("unreachable", [0, 1])
@in_virtual_time_with(quiescent)
async def test_a_quiescent_leader_whose_disk_fails_is_replaced_though_its_broker_lives(
    cluster: NodeCluster, unreachable: int
) -> None:
    leader = cluster.leading()
    for follower in cluster.followers()[:unreachable]:
        cluster.network.cut(leader.node_id, follower.node_id)
    await asyncio.sleep(0.01)
    leader.groups[GROUP].stop(OSError("the disk is broken"))
    took_s = await cluster.until(lambda: cluster.leader() is not None)
    assert took_s < (0.2 if not unreachable else ELECTED_WITHIN_S)
    assert leader.is_up
    cluster.network.heal_all()
    leader.crash()
    await leader.start()


@in_virtual_time_with(lambda: NodeCluster(8))
async def test_a_successor_that_lacks_entries_does_not_lead(cluster: NodeCluster) -> None:
    leader, (behind, ahead) = cluster.leading(), cluster.followers()
    cluster.network.stall(leader.node_id, behind.node_id)
    await leader.replicas[GROUP].append(batch_of(b"second"), acks=QUORUM, timeout_ms=1000)
    cluster.network.heal(leader.node_id, behind.node_id)
    cluster.network.cut(leader.node_id, ahead.node_id)
    leader.groups[GROUP].stop(OSError("the disk is broken"))
    assert await cluster.until(lambda: cluster.leader() is not None) < ELECTED_WITHIN_S + 1
    last = cluster.leading().groups[GROUP].log.last_index
    assert last >= 0


@in_virtual_time_with(lambda: NodeCluster(9))
async def test_a_leader_whose_sync_fails_hands_over_and_lives(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    leader.filesystem.fails_sync = lambda path: path.endswith(".log")
    with pytest.raises(CommitUnknown):  # the followers may have it, and do: a quorum without this disk
        await leader.replicas[GROUP].append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
    assert await cluster.until(lambda: cluster.leader() not in (None, leader)) < 0.2
    assert isinstance(leader.groups[GROUP].stopped, OSError)
    assert cluster.leading().groups[GROUP].log.last_index >= 0
