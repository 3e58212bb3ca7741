"""A disk without room: nothing acknowledged depends on it, its leaders hand over, and it recovers."""

from __future__ import annotations

import asyncio

import pytest

from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import CommitUnknown, StorageFull
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId, Index, Offset
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of, values_of
from tests.helpers.raft_member import members

GROUP = GroupId(1)
SMALL = LogSettings(segment_bytes=300, index_interval_bytes=512)  # three batches or so


@in_virtual_time_with(lambda: NodeCluster(1))
async def test_a_full_leader_neither_applies_nor_acknowledges(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    replica, group = leader.replicas[GROUP], leader.groups[GROUP]
    await replica.append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    leader.filesystem.capacity_bytes = leader.filesystem.used_bytes
    with pytest.raises(CommitUnknown):
        await replica.append(batch_of(b"1"), acks=QUORUM, timeout_ms=500)
    assert group.is_leader
    assert (group.commit_index, group.applied_index, group.last_index) == (1, 0, 1)
    with pytest.raises(StorageFull):
        await replica.append(batch_of(b"2"), acks=QUORUM, timeout_ms=500)
    found = await replica.fetch(FetchRequest(position=Offset(0)))
    assert (values_of(found.data), found.high_watermark) == ([b"0"], 1)
    leader.filesystem.capacity_bytes = None
    await cluster.settled()
    receipt = await replica.append(batch_of(b"2"), acks=QUORUM, timeout_ms=500)
    assert receipt.base_offset == 2
    found = await replica.fetch(FetchRequest(position=Offset(0)))
    assert values_of(found.data) == [b"0", b"1", b"2"]


@in_virtual_time_with(lambda: NodeCluster(2))
async def test_a_full_leader_still_serves_a_follower_that_lacks_entries(cluster: NodeCluster) -> None:
    leader, slow = cluster.leading(), cluster.followers()[0]
    slow.crash()
    leader.filesystem.capacity_bytes = leader.filesystem.used_bytes + 200
    rules = leader.replicas[GROUP]._rules
    leader.groups[GROUP].propose(rules.validated(batch_of(b"0")))
    await asyncio.sleep(0.2)
    proposal = leader.groups[GROUP].propose(rules.validated(batch_of(b"1" * 300)))
    await asyncio.sleep(0.2)
    assert leader.groups[GROUP].log.last_index < proposal.last == leader.groups[GROUP].last_index
    await slow.start()
    await cluster.until(lambda: slow.groups[GROUP].log.last_index == proposal.last)
    leader.filesystem.capacity_bytes = None
    await cluster.settled()
    assert proposal.outcome.done()


@in_virtual_time_with(lambda: NodeCluster(3))
async def test_a_full_follower_catches_up_and_its_group_goes_on(cluster: NodeCluster) -> None:
    leader, full = cluster.leading(), cluster.followers()[0]
    full.filesystem.capacity_bytes = full.filesystem.used_bytes
    for number in range(20):
        await leader.replicas[GROUP].append(batch_of(b"%d" % number), acks=QUORUM, timeout_ms=1000)
    assert full.groups[GROUP].durable_index == -1
    full.filesystem.capacity_bytes = None
    await cluster.settled()
    assert full.groups[GROUP].durable_index == 19


@in_virtual_time_with(lambda: NodeCluster(4))
async def test_a_full_replica_follows_the_next_leader_that_cuts_its_tail(cluster: NodeCluster) -> None:
    old = cluster.leading()
    others = cluster.followers()
    await old.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    for other in others:
        cluster.network.cut_both(old.node_id, other.node_id)
    old.filesystem.capacity_bytes = old.filesystem.used_bytes
    old.groups[GROUP].propose(old.replicas[GROUP]._rules.validated(batch_of(b"lost")))
    await cluster.until(lambda: any(other.groups[GROUP].is_ready for other in others))
    leader = next(other for other in others if other.groups[GROUP].is_ready)
    await leader.replicas[GROUP].append(batch_of(b"kept"), acks=QUORUM, timeout_ms=1000)
    cluster.network.heal_all()
    await asyncio.sleep(2)
    assert old.groups[GROUP].leader == leader.node_id
    old.filesystem.capacity_bytes = None
    await cluster.settled()
    for log in cluster.logs(GROUP):
        records = [bytes(batch.data) for batch in log if not batch.header.is_control]
        assert [value for data in records for value in values_of(data)] == [b"0", b"kept"]


@in_virtual_time_with(lambda: NodeCluster(5))
async def test_a_full_disk_spares_a_replica_whose_checkpoint_finds_no_room(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    await leader.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    leader.filesystem.capacity_bytes = leader.filesystem.used_bytes
    group = leader.groups[GROUP]
    assert await group.truncate_prefix(group.log.last_index) == 0  # a checkpoint comes first
    assert group.stopped is None
    await leader.stop()  # and closing wants one, too
    leader.filesystem.capacity_bytes = None
    await leader.start()
    await cluster.settled()


@in_virtual_time_with(lambda: NodeCluster(5, nodes=4, voters=3, log_settings=SMALL))
async def test_retention_without_room_for_the_members_is_tried_again(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    group, replica = leader.groups[GROUP], leader.replicas[GROUP]
    await group.change_membership(members(1, 2, 3, learners=[4]))
    for number in range(20):
        await replica.append(batch_of(b"%d" % number), acks=QUORUM, timeout_ms=1000)
    await cluster.settled()
    leader.filesystem.capacity_bytes = leader.filesystem.used_bytes
    assert await group.truncate_prefix(Index(15)) == 0
    leader.filesystem.capacity_bytes = None
    await replica.append(batch_of(b"20"), acks=QUORUM, timeout_ms=1000)
    assert await group.truncate_prefix(Index(15)) > 0
    await cluster.settled()


@in_virtual_time_with(lambda: NodeCluster(5, log_settings=SMALL))
async def test_a_follower_installs_a_snapshot_once_it_has_room(cluster: NodeCluster) -> None:
    leader, behind = cluster.leading(), cluster.followers()[0]
    await cluster.leave_behind(behind)
    await behind.start()
    group = behind.groups[GROUP]
    behind.filesystem.capacity_bytes = behind.filesystem.used_bytes
    await asyncio.sleep(5)
    assert group.log.first_index == 0
    behind.filesystem.capacity_bytes = None
    await cluster.settled()
    assert group.log.first_index == leader.groups[GROUP].log.first_index > 0


# requirement: N4
@pytest.mark.parametrize("seed", range(6))
@in_virtual_time_with(lambda seed: NodeCluster(seed))
async def test_a_vote_does_not_wait_for_room_on_the_disk(cluster: NodeCluster) -> None:
    old, full = cluster.leading(), cluster.followers()[0]
    full.filesystem.capacity_bytes = full.filesystem.used_bytes
    for number in range(3):
        await old.replicas[GROUP].append(batch_of(b"%d" % number), acks=QUORUM, timeout_ms=1000)
    await asyncio.sleep(1)  # the follower with room learns what is committed
    assert full.groups[GROUP].last_index == 2 > full.groups[GROUP].log.last_index
    old.crash()
    await cluster.until(lambda: cluster.leader() is not None, within_s=5)
    replica = cluster.leading().replicas[GROUP]
    async with asyncio.timeout(1):
        assert await replica.offset_at(Start.LATEST) == (3, None)
    found = await replica.fetch(FetchRequest(position=Offset(0)))
    assert values_of(found.data) == [b"0", b"1", b"2"]
    full.filesystem.capacity_bytes = None
    await old.start()
    await cluster.settled()


# requirement: N4
@in_virtual_time_with(lambda: NodeCluster(7))
async def test_writes_after_a_vote_are_not_acknowledged_to_the_old_leader(cluster: NodeCluster) -> None:
    old, full = cluster.leading(), cluster.followers()[0]
    (new,) = (broker for broker in cluster.followers() if broker is not full)
    group, network = old.groups[GROUP], cluster.network
    await old.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    await cluster.settled()
    for one, other in ((old, new), (new, old)):
        network.stall(one.node_id, other.node_id)
    full.filesystem.capacity_bytes = full.filesystem.used_bytes
    lost = group.propose(old.replicas[GROUP]._rules.validated(batch_of(b"1")))
    await asyncio.sleep(0.02)
    for one, other in ((old, full), (full, old)):
        network.stall(one.node_id, other.node_id)
    full.groups[GROUP].peer_unreachable(old.node_id)
    new.groups[GROUP].campaign()
    await cluster.until(lambda: new.groups[GROUP].is_leader, within_s=0.2)
    full.filesystem.capacity_bytes = None
    network.heal(full.node_id, old.node_id)
    await asyncio.sleep(0.2)
    assert full.groups[GROUP].log.last_index == lost.last
    assert group.is_leader
    assert not lost.outcome.done()
    network.heal_all()
    await new.replicas[GROUP].append(batch_of(b"2"), acks=QUORUM, timeout_ms=1000)
    await cluster.settled()
    assert isinstance(lost.outcome.exception(), CommitUnknown)


@in_virtual_time_with(lambda: NodeCluster(8))
async def test_all_disks_are_full_and_the_next_leader_serves_what_is_committed(cluster: NodeCluster) -> None:
    old = cluster.leading()
    await old.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    await cluster.settled()
    for broker in cluster.up:
        broker.filesystem.capacity_bytes = broker.filesystem.used_bytes
    old.groups[GROUP].propose(old.replicas[GROUP]._rules.validated(batch_of(b"1")))
    await asyncio.sleep(0.1)
    old.crash()
    await cluster.until(lambda: any(broker.groups[GROUP].is_leader for broker in cluster.up), 5)
    leader = next(broker for broker in cluster.up if broker.groups[GROUP].is_leader)
    found = await leader.replicas[GROUP].fetch(FetchRequest(position=Offset(0)))
    assert values_of(found.data) == [b"0"]
    for broker in cluster.brokers.values():
        broker.filesystem.capacity_bytes = None
    await old.start()
    await cluster.settled()


@in_virtual_time_with(lambda: NodeCluster(7, log_settings=SMALL))
async def test_retention_on_a_full_disk_spares_entries_not_durable(cluster: NodeCluster) -> None:
    """A write that fits in part is not durable for the core, although a sync for a new term covers it."""
    leader, full = cluster.leading(), cluster.followers()[0]
    full.crash()
    for value in [b"%d" % number for number in range(12)] + [bytes(100_000)]:
        await leader.replicas[GROUP].append(batch_of(value), acks=QUORUM, timeout_ms=1000)
    full.filesystem.capacity_bytes = full.filesystem.used_bytes + 50_000
    await full.start()
    group = full.groups[GROUP]
    await cluster.until(lambda: group.log.last_index == 11 and group.commit_index == 12)
    leader.groups[GROUP].transfer_leadership(cluster.followers()[1].node_id)
    await cluster.until(lambda: group.log.durable_index == 11)
    assert group.durable_index < 11
    assert await group.truncate_prefix(Index(11)) == 0
    assert group.stopped is None
    full.filesystem.capacity_bytes = None
    await cluster.settled()
    assert await group.truncate_prefix(Index(11)) > 0


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
async def test_where_no_broker_has_room_the_leader_stays(seed: int) -> None:
    """The brokers notice their full disks one after another."""
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
