"""Quiescent groups, and what unquiesces them: a dead broker, a silent one, a broken link, a failed disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations

import pytest

from partitions.values import QUORUM, Acks, AcksKind
from raftlog.errors import CommitUnknown
from raftlog.node.group_host import HostSettings
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.raft_member import members
from tests.helpers.virtual_time import VirtualLoop

GROUP = GroupId(1)
ELECTED_WITHIN_S = 2.5  # silence, then the longest draw of an election time-out, then the election


@asynccontextmanager
async def quiescent(groups: int = 1) -> AsyncIterator[NodeCluster]:
    """Three brokers whose groups are quiescent; in the end all agree and are quiescent again."""
    cluster = NodeCluster(7, groups=groups, settings=HostSettings(quiesce_ticks=20))
    await cluster.start()
    for group in cluster.group_ids:
        await append(cluster, b"1", group)
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


@in_virtual_time_with(lambda: quiescent(groups=15))
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


EVERY = Acks(AcksKind.EVERY)


async def left_alone(cluster: NodeCluster, gone: ClusterNode) -> None:
    """A broker crashes; the others elect leaders and become quiescent."""
    gone.crash()
    await cluster.until(lambda: all(cluster.leader(group) is not None for group in cluster.group_ids))
    await cluster.quiescent()


async def append(cluster: NodeCluster, value: bytes, group: GroupId = GROUP) -> None:
    await cluster.leading(group).replicas[group].append(batch_of(value), acks=QUORUM, timeout_ms=5000)


def in_sync(leader: ClusterNode) -> frozenset[int]:
    return leader.groups[GROUP].in_sync(None, 10_000)


@in_virtual_time_with(quiescent)
async def test_a_quiescent_leader_counts_no_unreachable_replica_as_in_sync(cluster: NodeCluster) -> None:
    leader, gone = cluster.leading(), cluster.followers()[0]
    assert in_sync(leader) == {1, 2, 3}
    await left_alone(cluster, gone)
    assert in_sync(leader) == {1, 2, 3} - {gone.node_id}
    await leader.replicas[GROUP].append(batch_of(b"2"), acks=EVERY, timeout_ms=1000)
    assert in_sync(leader) == {1, 2, 3} - {gone.node_id}
    await cluster.quiescent()
    await gone.start()
    await cluster.until(lambda: in_sync(leader) == {1, 2, 3})


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("pause_s", [0, 0.2, 1, 20])
@in_virtual_time_with(lambda: quiescent(groups=15))
async def test_replicas_of_a_broker_catch_up_however_soon_it_returns(
    cluster: NodeCluster, pause_s: float, is_empty: bool
) -> None:
    """A leader may be told of the loss when its peer has already returned."""
    gone = cluster.followers()[0]
    gone.crash()
    if is_empty:
        gone.lose_disk()
    await asyncio.sleep(pause_s)
    await gone.start()
    await cluster.until(lambda: not any(group.is_rejoining for group in gone.groups.values()))


@in_virtual_time_with(lambda: quiescent(groups=15))
async def test_a_later_leader_knows_who_is_unreachable(cluster: NodeCluster) -> None:
    """The later leader had not been told of the loss when the others elected a leader."""
    gone = cluster.followers()[0]
    await left_alone(cluster, gone)
    one, other = cluster.up
    for group in cluster.group_ids:
        leader, heir = (one, other) if one.groups[group].is_leader else (other, one)
        leader.groups[group].transfer_leadership(heir.node_id)
        await cluster.until(lambda group=group, heir=heir: cluster.leader(group) is heir)
    await cluster.quiescent()
    await gone.start()


@in_virtual_time_with(lambda: quiescent(groups=10))
async def test_a_broker_that_starts_leads_quiescent_groups(cluster: NodeCluster) -> None:
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


@in_virtual_time_with(lambda: NodeCluster(7, nodes=4, voters=3))
async def test_a_former_member_that_returns_is_no_longer_unreachable(cluster: NodeCluster) -> None:
    """Added again, it must not be left out."""
    spare = cluster.brokers[NodeId(4)]
    await cluster.leading().groups[GROUP].change_membership(members(1, 2, 3, learners=[4]))
    await cluster.quiescent()
    spare.crash()
    await cluster.quiescent()
    await cluster.leading().groups[GROUP].change_membership(members(1, 2, 3))
    await spare.start()
    await asyncio.sleep(1)
    assert not any(broker.groups[GROUP].unreachable for broker in cluster.up)


@in_virtual_time_with(lambda: quiescent(groups=15))
async def test_groups_become_quiescent_again_after_a_broker_has_flapped(cluster: NodeCluster) -> None:
    gone = cluster.followers()[0]
    for pause_s in (0.05, 0.3, 0.6, 0.1, 1.5):
        gone.crash()
        await asyncio.sleep(pause_s)
        await gone.start()
        await asyncio.sleep(pause_s)


@in_virtual_time_with(quiescent)
async def test_a_quiescent_leader_that_is_left_alone_steps_down(cluster: NodeCluster) -> None:
    leader, (gone, last) = cluster.leading(), cluster.followers()
    await left_alone(cluster, gone)
    last.crash()
    await cluster.until(lambda: not leader.groups[GROUP].is_leader)
    await gone.start()
    await cluster.until(lambda: cluster.leader() is not None)
    await append(cluster, b"2")
    await cluster.quiescent()
    await last.start()


@in_virtual_time_with(quiescent)
async def test_a_broker_that_returns_elects_another_leader(cluster: NodeCluster) -> None:
    leader, gone = cluster.leading(), cluster.followers()[0]
    await left_alone(cluster, gone)
    await append(cluster, b"2")  # the broker that is down lacks it, and must not lead
    await cluster.quiescent()
    leader.crash()
    await gone.start()
    await cluster.until(lambda: cluster.leader() not in (None, leader, gone))
    await leader.start()


@in_virtual_time_with(quiescent)
async def test_a_broker_that_only_a_follower_hears_unquiesces_its_group(cluster: NodeCluster) -> None:
    """The broker catches up when the leader hears it, too, and deposes nobody meanwhile."""
    leader, (gone, follower) = cluster.leading(), cluster.followers()
    term = leader.groups[GROUP].term
    cluster.network.isolate(gone.node_id)
    await append(cluster, b"2")
    await cluster.until(lambda: leader.groups[GROUP].is_quiescent)
    cluster.network.heal(gone.node_id, follower.node_id)
    cluster.network.heal(follower.node_id, gone.node_id)
    await asyncio.sleep(10)
    assert (leader.groups[GROUP].is_leader, leader.groups[GROUP].term) == (True, term)
    cluster.network.heal_all()


@pytest.mark.parametrize("direction", ["to", "from"])
@in_virtual_time_with(quiescent)
async def test_a_broker_that_returns_in_one_direction_deposes_nobody(
    cluster: NodeCluster, direction: str
) -> None:
    leader, gone = cluster.leading(), cluster.followers()[0]
    term = leader.groups[GROUP].term
    cluster.network.isolate(gone.node_id)
    await append(cluster, b"2")
    await cluster.until(lambda: leader.groups[GROUP].is_quiescent)
    for other in [broker.node_id for broker in cluster.up if broker is not gone]:
        if direction == "to":
            cluster.network.heal(other, gone.node_id)
        else:
            cluster.network.heal(gone.node_id, other)
    await asyncio.sleep(10)
    assert (leader.groups[GROUP].is_leader, leader.groups[GROUP].term) == (True, term)
    cluster.network.heal_all()


@pytest.mark.parametrize("pause_s", [0, 20])
@in_virtual_time_with(lambda: NodeCluster(7, nodes=4, voters=3, groups=15))
async def test_a_learner_that_lost_its_disk_is_sent_everything_again(
    cluster: NodeCluster, pause_s: float
) -> None:
    """A learner never campaigns."""
    for group in cluster.group_ids:
        await append(cluster, b"1", group)
        await cluster.leading(group).groups[group].change_membership(members(1, 2, 3, learners=[4]))
    await cluster.settled()
    await cluster.quiescent()
    learner = cluster.brokers[NodeId(4)]
    learner.crash()
    learner.lose_disk()
    await asyncio.sleep(pause_s)
    await learner.start()
    await cluster.settled()
    await cluster.quiescent()


@in_virtual_time_with(quiescent)
async def test_a_broker_that_returns_replaces_a_failed_follower(cluster: NodeCluster) -> None:
    gone, follower = cluster.followers()
    await left_alone(cluster, gone)
    follower.groups[GROUP].stop(OSError("on purpose"))
    await gone.start()
    leads = [cluster.leading(), gone]
    await cluster.until(lambda: all(b.groups[GROUP].last_index == 0 for b in leads))
    await append(cluster, b"2")
    follower.crash()
    await follower.start()
