"""Members come and go while producers go on, and followers far behind get a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.core.messages import Heartbeat, VoteRequest
from raftlog.errors import CommitUnknown, InvalidRequest, LeadershipNotMoved, NotLeader, RaftlogError
from raftlog.node.codec import encode_message
from raftlog.node.frame_limits import FrameLimits
from raftlog.node.group import snapshot_transfer
from raftlog.node.group_host import HostSettings
from raftlog.storage.log_storage import LogChange, carry_out
from raftlog.storage.segmented_log import LogSettings
from raftlog.testing.fake_filesystem import PowerLost
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.raft_member import members

GROUP = GroupId(1)


async def append(cluster: NodeCluster, *values: bytes) -> None:
    """Producers go on, whoever leads."""
    for value in values:
        await cluster.until(lambda: cluster.leader() is not None)
        await cluster.leading().replicas[GROUP].append(batch_of(value), acks=QUORUM, timeout_ms=5000)


async def change(cluster: NodeCluster, target: Membership) -> None:
    """Ask whoever leads until it is done."""
    for _ in range(100):
        await cluster.until(lambda: cluster.leader() is not None)
        try:
            return await cluster.leading().groups[GROUP].change_membership(target)
        except RaftlogError:
            await asyncio.sleep(0.05)
    pytest.fail(f"{target} is not reached\n{cluster.describe()}")


async def caught_up(cluster: NodeCluster, *nodes: int) -> None:
    """These hold what the leader holds now."""
    await cluster.until(lambda: cluster.leader() is not None)
    last = cluster.leading().groups[GROUP].last_index
    await cluster.until(
        lambda: all(cluster.brokers[NodeId(node)].groups[GROUP].durable_index >= last for node in nodes)
    )


# requirement: F2
@in_virtual_time_with(lambda: NodeCluster(1, nodes=5, voters=3))
async def test_three_members_become_five_and_three_again_under_load(cluster: NodeCluster) -> None:
    await append(cluster, b"before")
    written = 0

    async def load() -> None:
        nonlocal written
        while True:
            try:
                await append(cluster, b"%d" % written)
                written += 1
                await asyncio.sleep(0.005)
            except RaftlogError:
                await asyncio.sleep(0.01)

    producing = asyncio.create_task(load())
    await change(cluster, members(1, 2, 3, learners=[4, 5]))
    await caught_up(cluster, 4, 5)
    await change(cluster, members(1, 2, 3, 4, 5))
    assert cluster.leading().groups[GROUP].membership == members(1, 2, 3, 4, 5)
    await asyncio.sleep(0.2)
    await change(cluster, members(3, 4, 5))
    await asyncio.sleep(0.2)
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    assert written > 20
    await cluster.settled()
    heard = cluster.brokers[NodeId(4)].heard
    assert [told for _, told, is_committed in heard if is_committed] == [
        members(1, 2, 3, learners=[4, 5]),
        members(1, 2, 3, 4, 5),
        members(3, 4, 5),
    ]
    assert cluster.leading().node_id in (3, 4, 5)
    removed = {broker.node_id for broker in cluster.up if broker.removed}
    assert removed <= {1, 2}
    assert removed  # one that the leader's last message does not reach is told by the metadata
    last = cluster.leading().groups[GROUP].last_index
    assert len(cluster.applied[GROUP].batches) == last + 1


@in_virtual_time_with(lambda: NodeCluster(2, nodes=4, voters=3))
async def test_what_cannot_be_a_membership_is_refused_and_says_why(cluster: NodeCluster) -> None:
    group, follower = cluster.leading().groups[GROUP], cluster.followers()[0].groups[GROUP]
    with pytest.raises(InvalidRequest, match="without the newest membership"):
        await group.change_membership(members(1, 2, 3, 4))
    with pytest.raises(InvalidRequest, match="name at least one"):
        await group.change_membership(members())
    with pytest.raises(NotLeader):
        await follower.change_membership(members(1, 2))
    await group.change_membership(members(1, 2, 3))  # it is so already
    await group.change_membership(members(1, 2, 3))
    assert group.last_index == 0  # once: nothing of this leader was committed before
    first = asyncio.create_task(group.change_membership(members(1, 2, 3, learners=[4])))
    again = asyncio.create_task(group.change_membership(members(1, 2, 3, learners=[4])))
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match="not finished"):
        await group.change_membership(members(1, 2))
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.gather(again, return_exceptions=True)
    assert group.membership == members(1, 2, 3, learners=[4])


@in_virtual_time_with(lambda: NodeCluster(6, nodes=4, voters=3))
async def test_a_learner_that_was_down_is_sent_what_its_quiescent_leader_holds(cluster: NodeCluster) -> None:
    await change(cluster, members(1, 2, 3, learners=[4]))
    await caught_up(cluster, 4)
    learner = cluster.brokers[NodeId(4)]
    learner.crash()
    await append(cluster, b"v")
    await cluster.quiescent()
    await learner.start()  # it never campaigns
    await caught_up(cluster, 4)


@in_virtual_time_with(lambda: NodeCluster(3, nodes=4, voters=3))
async def test_a_change_whose_leader_is_lost_is_unknown_and_repeatable(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    for other in cluster.followers():
        cluster.network.cut_both(leader.node_id, other.node_id)
    with pytest.raises(CommitUnknown):
        await leader.groups[GROUP].change_membership(members(1, 2, 3, learners=[4]))
    cluster.network.heal_all()
    await cluster.until(lambda: cluster.leader() not in (None, leader))
    await append(cluster, b"v")
    await cluster.settled()
    assert leader.groups[GROUP].membership == members(1, 2, 3)  # it was undone
    assert (GROUP, members(1, 2, 3), True) in leader.heard
    await change(cluster, members(1, 2, 3, learners=[4]))
    await caught_up(cluster, 4)


@in_virtual_time_with(lambda: NodeCluster(4))
async def test_a_leader_that_removes_itself_hands_over_once_that_is_committed(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    await append(cluster, b"v")
    others = members(*(broker.node_id for broker in cluster.followers()))
    await leader.groups[GROUP].change_membership(others)
    await cluster.until(lambda: cluster.leader() not in (None, leader))
    assert leader.groups[GROUP].is_removed
    assert leader.removed == [GROUP]
    await leader.host.close_group(GROUP)
    del leader.groups[GROUP], leader.replicas[GROUP]
    leader.crash()
    await append(cluster, b"w", b"x")


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time_with(lambda seed: NodeCluster(seed, nodes=5, voters=3))
async def test_every_member_starts_anew_in_the_midst_of_a_joint_change(
    cluster: NodeCluster, seed: int
) -> None:
    await append(cluster, b"a", b"b")
    await change(cluster, members(1, 2, 3, learners=[4, 5]))
    await caught_up(cluster, 4, 5)
    target = members(3, 4, 5)
    changing = asyncio.create_task(cluster.leading().groups[GROUP].change_membership(target))
    await asyncio.sleep(0.001 * seed)
    rng = random.Random(seed)
    for broker in cluster.up:
        broker.crash(rng if seed % 2 else None)
    await asyncio.gather(changing, return_exceptions=True)
    for broker in cluster.brokers.values():
        await broker.start()
    await append(cluster, b"c")
    await change(cluster, target)
    await append(cluster, b"d")
    await cluster.settled()
    assert cluster.leading().groups[GROUP].membership == target
    for broker in cluster.up:
        broker.crash(rng)
    for node in (3, 4, 5):
        await cluster.brokers[NodeId(node)].start()
    await append(cluster, b"e")
    assert cluster.leading().groups[GROUP].membership == target


@in_virtual_time_with(lambda: NodeCluster(5, nodes=4))
async def test_old_messages_of_a_removed_member_change_nothing(cluster: NodeCluster) -> None:
    leader, gone = cluster.leading(), cluster.followers()[0]
    await append(cluster, b"v")
    stale = leader.groups[GROUP].term
    await change(cluster, members(*(set(cluster.nodes) - {gone.node_id})))
    await append(cluster, b"w")
    group = leader.groups[GROUP]
    before = (group.term, group.leader, group.last_index)
    for message in (
        VoteRequest(term=Term(stale + 5), last=EntryId(stale, Index(900))),
        VoteRequest(term=stale, last=EntryId(stale, Index(0)), is_pre_vote=True),
    ):
        gone.transport.send(leader.node_id, encode_message(GROUP, message))
    gone.host.send(GROUP, leader.node_id, Heartbeat(term=Term(stale - 1), commit_index=Index(-1), round=1))
    gone.host._drain()
    await asyncio.sleep(1)
    assert (group.term, group.leader, group.last_index) == before
    await append(cluster, b"x")


@in_virtual_time_with(lambda: NodeCluster(6))
async def test_a_transfer_returns_once_another_leads(cluster: NodeCluster) -> None:
    leader, target = cluster.leading(), cluster.followers()[0]
    with pytest.raises(InvalidRequest, match="not another voter"):
        await leader.groups[GROUP].transfer_and_wait(NodeId(9), 1000)
    with pytest.raises(InvalidRequest, match="not another voter"):
        await leader.groups[GROUP].transfer_and_wait(leader.node_id, 1000)
    await leader.groups[GROUP].transfer_and_wait(target.node_id, 1000)
    assert leader.groups[GROUP].leader == target.node_id
    with pytest.raises(NotLeader):
        await leader.groups[GROUP].transfer_and_wait(target.node_id, 1000)
    await cluster.until(lambda: cluster.leader() is target)
    for other in cluster.followers():
        other.disk.clear()
    target.groups[GROUP].propose(target.replicas[GROUP]._rules.validated(batch_of(b"v")))
    with pytest.raises(LeadershipNotMoved):
        await target.groups[GROUP].transfer_and_wait(leader.node_id, 2000)
    assert target.groups[GROUP].is_leader
    for other in cluster.up:
        other.disk.set()
    await cluster.settled()
    await asyncio.sleep(1)  # until no transfer is under way
    await append(cluster, b"w")


@in_virtual_time_with(lambda: NodeCluster(6))
async def test_a_transfer_is_in_doubt_when_the_leader_stops_during_it(cluster: NodeCluster) -> None:
    group, target = cluster.leading().groups[GROUP], cluster.followers()[0]
    for other in cluster.followers():
        other.disk.clear()
    group.propose(cluster.leading().replicas[GROUP]._rules.validated(batch_of(b"v")))
    moving = asyncio.create_task(group.transfer_and_wait(target.node_id, 5000))
    await asyncio.sleep(0.01)
    group.leave()
    with pytest.raises(LeadershipNotMoved):  # a definite refusal would be repeated at the next leader
        await moving
    for other in cluster.up:
        other.disk.set()


SMALL = LogSettings(segment_bytes=300, index_interval_bytes=512)  # three batches or so
BYTEWISE = HostSettings(frame_limits=FrameLimits(chunk_bytes=1))  # snapshots


async def append_some(cluster: NodeCluster, count: int) -> None:
    """So many batches."""
    await append(cluster, *(b"%d" % number for number in range(count)))


async def cut(broker: ClusterNode, first_kept: int) -> int:
    """Retention, on one broker."""
    return await broker.groups[GROUP].truncate_prefix(Index(first_kept))


def state_of(broker: ClusterNode) -> bytes:
    """The state of the broker's machine."""
    return broker.replicas[GROUP].machine.snapshot()


async def one_behind(cluster: NodeCluster) -> ClusterNode:
    """A follower that is down while all others let go of what it lacks."""
    await append_some(cluster, 4)
    behind = cluster.followers()[-1]
    await cluster.leave_behind(behind)
    return behind


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time_with(lambda seed: NodeCluster(seed, log_settings=SMALL))
async def test_a_replica_behind_the_log_start_is_brought_up(cluster: NodeCluster, seed: int) -> None:
    behind = await one_behind(cluster)
    await behind.start()
    await append_some(cluster, 3)
    await cluster.settled()
    group = behind.groups[GROUP]
    assert group.log.first_index == cluster.leading().groups[GROUP].log.first_index > 0
    assert group.applied_index == group.last_index
    rng = random.Random(seed)
    for broker in cluster.up:
        broker.crash(rng if seed % 2 else None)
    for broker in cluster.brokers.values():
        await broker.start()
    await append_some(cluster, 3)
    await cluster.settled()
    assert behind.replicas[GROUP].machine.snapshot() == cluster.leading().replicas[GROUP].machine.snapshot()


@in_virtual_time_with(lambda: NodeCluster(7, nodes=4, voters=3, log_settings=SMALL))
async def test_an_added_replica_begins_with_a_snapshot(cluster: NodeCluster) -> None:
    await append_some(cluster, 20)
    await cluster.settled()
    for broker in cluster.up:
        await cut(broker, 15)
    leader = cluster.leading()
    await leader.groups[GROUP].change_membership(members(1, 2, 3, learners=[4]))
    new = cluster.brokers[NodeId(4)].groups[GROUP]
    await cluster.until(lambda: new.durable_index == leader.groups[GROUP].last_index)
    assert new.log.first_index > 0
    await leader.groups[GROUP].change_membership(members(2, 3, 4))
    await append_some(cluster, 3)
    await cluster.settled()
    new_life = cluster.brokers[NodeId(4)]
    new_life.crash()
    await new_life.start()
    await cluster.settled()
    assert new_life.groups[GROUP].membership == members(2, 3, 4)


@pytest.mark.parametrize("trouble", ["link", "leader", "follower"])
@pytest.mark.parametrize("after_bytes", [1, 3])
@in_virtual_time_with(lambda: NodeCluster(3, log_settings=SMALL, settings=BYTEWISE))
async def test_a_transfer_goes_on_after_trouble_in_its_midst(
    cluster: NodeCluster, trouble: str, after_bytes: int
) -> None:
    behind = await one_behind(cluster)
    leader = cluster.leading()
    cluster.network.delay(leader.node_id, behind.node_id, 0.05)
    await behind.start()
    transfer = behind.groups[GROUP]._transfer
    asked: list[int] = []
    fetch_chunk = transfer._fetch_chunk

    async def noted(source: NodeId, snapshot: EntryId) -> None:
        asked.append(len(transfer._received))
        await fetch_chunk(source, snapshot)

    transfer._fetch_chunk = noted  # type: ignore[method-assign]
    await cluster.until(lambda: len(transfer._received) == after_bytes)
    if trouble == "link":
        cluster.network.cut_both(leader.node_id, behind.node_id)
        await asyncio.sleep(0.3)
        assert len(transfer._received) == after_bytes
        assert behind.groups[GROUP].log.first_index == 0
        cluster.network.heal_all()
    elif trouble == "leader":
        other = next(broker for broker in cluster.followers() if broker is not behind)
        await leader.groups[GROUP].transfer_and_wait(other.node_id, 5000)
    else:
        behind.crash(random.Random(1))
        await behind.start()
    await append_some(cluster, 3)
    await cluster.settled()
    assert behind.groups[GROUP].log.first_index > 0
    assert asked.count(0) <= 1  # what had come was not asked for again


@in_virtual_time_with(lambda: NodeCluster(3, log_settings=SMALL))
async def test_a_leader_whose_first_state_is_lost_lets_others_give_it(cluster: NodeCluster) -> None:
    # requirement: M3
    behind = await one_behind(cluster)
    leader = cluster.leading()
    states = leader.groups[GROUP].log.states
    with leader.on_a_thread():
        leader.filesystem.remove(states._path(leader.groups[GROUP].log.first_index))
    await behind.start()
    await cluster.until(lambda: behind.groups[GROUP].log.first_index > 0)
    assert cluster.leading() is leader
    await append_some(cluster, 3)
    await cluster.settled()
    assert state_of(behind) == state_of(leader)


@in_virtual_time_with(lambda: NodeCluster(5, log_settings=SMALL))
async def test_a_damaged_chunk_is_refused(cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = await one_behind(cluster)
    await behind.start()
    calls = behind.host.calls
    ask, starts = calls.call, []

    async def spoiled(peer: NodeId, service: str, head: bytes, **options: int) -> tuple[bytes, memoryview]:
        answer, payload = await ask(peer, service, head, timeout_ms=options["timeout_ms"])
        if service == snapshot_transfer.SERVICE and len(starts) < 3:
            starts.append(behind.groups[GROUP].log.first_index)
            payload = memoryview(bytes(payload[:-1]) + bytes([payload[-1] ^ 1]))
        return answer, payload

    monkeypatch.setattr(calls, "call", spoiled)
    await cluster.until(lambda: behind.groups[GROUP].log.first_index > 0)
    assert starts == [0, 0, 0]
    await append_some(cluster, 3)
    await cluster.settled()
    assert state_of(behind) == state_of(cluster.leading())


@pytest.mark.parametrize("crash_after", range(30))
@in_virtual_time_with(lambda crash_after: NodeCluster(crash_after, log_settings=SMALL))
async def test_a_follower_that_loses_power_at_any_moment_of_the_install_comes_up(
    cluster: NodeCluster, crash_after: int
) -> None:
    behind = await one_behind(cluster)
    await behind.start()
    group = behind.groups[GROUP]
    rng = random.Random(crash_after)
    lost: list[int] = []
    install = group._install_change

    def watched() -> LogChange | None:
        behind.filesystem.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost), behind.on_a_thread():
            carry_out(install())
            carry_out(group.log.removal_change())
        lost.append(1)
        behind.crash(rng)
        return None

    group._install_change = watched  # type: ignore[method-assign]
    await cluster.until(lambda: bool(lost))
    await behind.start()
    await append_some(cluster, 3)
    await cluster.settled()
    assert behind.groups[GROUP].log.first_index > 0


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time_with(lambda seed: NodeCluster(seed, nodes=4, voters=3, log_settings=SMALL))
async def test_members_change_while_logs_are_cut_and_brokers_die(cluster: NodeCluster, seed: int) -> None:
    rng = random.Random(seed)
    await append_some(cluster, 5)

    async def produce() -> None:
        while True:
            try:
                await append_some(cluster, 1)
            except RaftlogError:
                await asyncio.sleep(0.01)

    producing = asyncio.create_task(produce())
    voters = {1, 2, 3}
    for _ in range(4):
        (new,) = {1, 2, 3, 4} - voters
        await change(cluster, members(*voters, learners=[new]))
        for broker in cluster.up:
            await cut(broker, broker.groups[GROUP].applied_index - rng.randrange(30))
        if rng.random() < 0.7:
            victim = rng.choice(cluster.up)
            victim.crash(rng)
            await asyncio.sleep(rng.random())
            await victim.start()
        voters = voters - {rng.choice(sorted(voters))} | {new}
        await change(cluster, members(*voters))
    producing.cancel()
    await asyncio.gather(producing, return_exceptions=True)
    await append_some(cluster, 3)
    await cluster.settled()
