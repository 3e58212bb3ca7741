"""Leaders that come, announce commits, transfer leadership, slow down and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from partitions.values import QUORUM, Start
from raftlog.core.inputs import Input
from raftlog.core.messages import AppendRequest, Message
from raftlog.core.raft import Raft
from raftlog.errors import CommitUnknown, NoLeader, NotLeader, Overloaded
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.records.batch import Batch, split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import FIRST_GROUP, ClusterNode, NodeCluster
from tests.helpers.orders import batch_of

GROUP = GroupId(1)


def batches(broker: ClusterNode, *values: bytes) -> list[Batch]:
    """What a producer would send."""
    return broker.replicas[GROUP]._rules.validated(batch_of(*values))


@in_virtual_time_with(lambda: NodeCluster(1))
async def test_an_office_is_not_ready_before_it_has_applied_what_it_found(cluster: NodeCluster) -> None:
    first, second = cluster.leading(), cluster.followers()[0]
    for _ in range(2):  # the second member leads, too, and then the first one again
        await first.replicas[GROUP].append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
        first.groups[GROUP].transfer_leadership(second.node_id)
        await cluster.until(lambda: cluster.leader() not in (None, first))  # noqa: B023
        first, second = second, first
    group = second.groups[GROUP]
    for broker in cluster.up:
        broker.sync_s = 0.05
    first.groups[GROUP].propose(batches(first, b"uncommitted"))
    await asyncio.sleep(0.01)
    early: list[tuple[int, int]] = []

    class Watched:
        """The core, and a look at the group after each step."""

        def __init__(self, core: Raft) -> None:
            self._inner = core

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def step(self, event: Input) -> None:
            self._inner.step(event)
            if group.is_ready:
                early.append((group.applied_index, group.last_index))

    group._core = Watched(group._core)  # type: ignore[assignment]
    first.crash()
    await cluster.until(lambda: group.durable_index == group.last_index)  # elections go by what is
    assert group.commit_index < group.last_index
    group.campaign()
    await cluster.until(lambda: any(broker.groups[GROUP].is_ready for broker in cluster.up))
    assert group.is_leader
    assert all(applied == last for applied, last in early)


@in_virtual_time_with(lambda: NodeCluster(2))
async def test_nothing_can_be_proposed_while_leadership_is_handed_over(cluster: NodeCluster) -> None:
    leader, follower = cluster.leading(), cluster.followers()[0]
    group = leader.groups[GROUP]
    cluster.network.stall(leader.node_id, follower.node_id)
    group.propose(batches(leader, b"0"))
    waiting = group._recent.uncommitted_bytes
    group.transfer_leadership(follower.node_id)
    with pytest.raises(NotLeader):
        group.propose(batches(leader, b"1"))
    assert (group.last_index, group._recent.uncommitted_bytes) == (0, waiting)
    cluster.network.heal_all()
    await cluster.until(lambda: follower.groups[GROUP].is_ready)
    await cluster.settled()
    assert group._recent.uncommitted_bytes == 0


@in_virtual_time_with(lambda: NodeCluster(4, log_settings=LogSettings(segment_bytes=64 << 20)))
async def test_a_slow_follower_costs_its_leader_a_bounded_amount_of_memory(cluster: NodeCluster) -> None:
    leader, slow = cluster.leading(), cluster.followers()[0]
    cluster.network.stall(leader.node_id, slow.node_id)
    group = leader.groups[GROUP]
    queued, last = 0, -1
    for _ in range(24):
        body = batch_of(b"x" * 250_000)
        last = (await leader.replicas[GROUP].append(body, acks=QUORUM, timeout_ms=1000)).base_offset
        queued = max(queued, leader.transport.queued_bytes(slow.node_id))
    assert queued < 17 * 250_000  # appends in flight, and heartbeats
    assert (group._recent.uncommitted_bytes, group._recent.size_bytes) == (0, 0)
    cluster.network.heal_all()
    await cluster.settled()
    assert int(slow.groups[GROUP].last_index) == last


@in_virtual_time_with(lambda: NodeCluster(5, settings=HostSettings(quiesce_ticks=20)))
async def test_all_replicas_are_in_sync_when_a_group_wakes(cluster: NodeCluster) -> None:
    leader, silent = cluster.leading(), cluster.followers()[0]
    group = leader.groups[GROUP]
    await leader.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    await cluster.quiescent()
    await asyncio.sleep(60)
    group.propose(batches(leader, b"1"))
    assert not group.is_quiescent
    assert group.in_sync(None, 1000) == frozenset(cluster.nodes)
    cluster.network.stall(silent.node_id, leader.node_id)
    group.propose(batches(leader, b"2"))
    took_s = await cluster.until(lambda: silent.node_id not in group.in_sync(None, 1000))
    assert 0.8 < took_s < 1.5
    cluster.network.heal_all()
    await cluster.until(lambda: group.in_sync(None, 1000) == frozenset(cluster.nodes))


@in_virtual_time_with(lambda: NodeCluster(6))
async def test_a_leader_that_stops_under_load_stops_soon(cluster: NodeCluster) -> None:
    leader = cluster.leading()
    outcomes: list[BaseException | None] = []

    async def produce() -> None:
        while True:
            try:
                await leader.replicas[GROUP].append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
            except (CommitUnknown, NotLeader) as error:
                outcomes.append(error)
                return

    producers = [asyncio.create_task(produce()) for _ in range(10)]
    await asyncio.sleep(0.2)
    for broker in cluster.up:
        broker.sync_s = 0.2
    began = asyncio.get_running_loop().time()
    await leader.host.stop()
    leader.is_up = False
    assert asyncio.get_running_loop().time() - began < 1.0
    await asyncio.gather(*producers)
    assert any(isinstance(error, CommitUnknown) for error in outcomes)
    await cluster.until(lambda: cluster.leader() is not None)


@in_virtual_time_with(lambda: NodeCluster(7))
async def test_a_follower_that_stops_under_load_stops_soon(cluster: NodeCluster) -> None:
    leader, follower = cluster.leading(), cluster.followers()[0]
    is_over = asyncio.Event()

    async def produce() -> None:
        while not is_over.is_set():
            await leader.replicas[GROUP].append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)

    producers = [asyncio.create_task(produce()) for _ in range(10)]
    await asyncio.sleep(0.2)
    await asyncio.wait_for(follower.stop(), 1.0)
    is_over.set()
    await asyncio.gather(*producers)


@in_virtual_time_with(lambda: NodeCluster(8, groups=40))
async def test_many_groups_are_handed_over_and_closed_in_time(cluster: NodeCluster) -> None:
    leaving = cluster.brokers[cluster.nodes[0]]
    led = [group for group in leaving.groups.values() if group.is_leader]
    assert len(led) > 8
    began = asyncio.get_running_loop().time()
    await leaving.stop()
    assert asyncio.get_running_loop().time() - began < 3.0
    took_s = await cluster.until(lambda: all(map(cluster.leader, cluster.group_ids)))
    assert took_s < 0.5


async def test_brokers_that_stop_together_take_no_leadership_from_one_another() -> None:
    cluster = NodeCluster(8, groups=20)
    await cluster.start()
    await cluster.until(lambda: all(map(cluster.leader, cluster.group_ids)))
    *leaving, staying = (cluster.brokers[node] for node in cluster.nodes)
    terms = {group_id: group.term for group_id, group in staying.groups.items()}
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(broker.stop() for broker in leaving))
    assert asyncio.get_running_loop().time() - began < 1.0, "one broker takes them all"
    risen = [group.term - terms[group_id] for group_id, group in staying.groups.items()]
    assert max(risen) == 1, risen
    began = asyncio.get_running_loop().time()
    await staying.stop()
    assert asyncio.get_running_loop().time() - began < 1.0, "there is nobody to wait for"


async def test_a_torn_tail_is_logged_when_a_broker_opens_its_log(caplog: pytest.LogCaptureFixture) -> None:
    cluster = NodeCluster(9)
    await cluster.start()
    broker = cluster.leading()
    await broker.replicas[GROUP].append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
    broker.crash()
    file = broker.filesystem.open("/group-1/00000000000000000000.log")
    file.append([b"half of a batch"])
    await broker.start()
    await cluster.settled()
    await cluster.stop()
    assert "cut off a torn tail" in caplog.text


# requirement: N2
@in_virtual_time_with(lambda: NodeCluster(1, nodes=1, groups=2))
async def test_waiting_bytes_are_bounded_for_all_partitions_together(cluster: NodeCluster) -> None:
    (broker,) = cluster.up
    await cluster.until(lambda: all(group.is_ready for group in broker.groups.values()))
    first, second = broker.groups.values()
    broker.host.uncommitted.bytes_max = 100
    first.propose(batches(broker, b"x" * 200))
    with pytest.raises(Overloaded):
        second.propose(batches(broker, b"y"))
    await cluster.until(lambda: broker.host.uncommitted.total == 0)
    second.propose(batches(broker, b"y"))
    assert broker.host.uncommitted.total > 0
    await broker.host.close_group(second.group_id)
    assert broker.host.uncommitted.total == 0


@in_virtual_time_with(lambda: NodeCluster(1))
async def test_an_isolated_leader_does_not_tell_where_its_log_ends(cluster: NodeCluster) -> None:
    replica = cluster.leading().replicas[FIRST_GROUP]
    await replica.append(batch_of(b"v"), acks=QUORUM, timeout_ms=1000)
    assert await replica.offset_at(Start.LATEST) == (1, None)
    leader = cluster.leading()
    for follower in cluster.followers():
        cluster.network.cut_both(leader.node_id, follower.node_id)
    assert leader.groups[FIRST_GROUP].is_ready, "it does not know yet"
    with pytest.raises((NotLeader, NoLeader)):
        await replica.offset_at(Start.LATEST)
    cluster.network.heal_all()
    await cluster.settled()


HEARTBEAT_S = 0.5


@pytest.mark.parametrize("at_once", [True, False])
async def test_followers_know_of_an_announced_commit_before_the_next_heartbeat(at_once: bool) -> None:
    settings = HostSettings(heartbeat_ticks=10, election_ticks=30, quiesce_ticks=1000)
    cluster = NodeCluster(1, announces_commits=at_once, settings=settings)
    await cluster.start()
    leader = cluster.leading()
    took_s = []
    for number in range(5):
        batch = batch_of(b"%d" % number)
        await leader.replicas[FIRST_GROUP].append(batch, acks=QUORUM, timeout_ms=1000)
        took_s.append(await cluster.until(lambda: cluster.is_settled(FIRST_GROUP)))
    assert (max(took_s) < HEARTBEAT_S / 5) == at_once
    await cluster.stop()


# requirement: RP2
@in_virtual_time_with(lambda: NodeCluster(3))
async def test_a_batch_is_on_its_way_before_the_leader_appends_it(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = cluster.leading()
    group, sent, send = leader.groups[FIRST_GROUP], [], GroupHost.send

    def noted(
        host: GroupHost, group_id: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()
    ) -> bool:
        if isinstance(message, AppendRequest) and payload:
            sent.append((to, group.log.last_index))
        return send(host, group_id, to, message, payload)

    monkeypatch.setattr(GroupHost, "send", noted)
    before = group.log.last_index
    proposal = group.propose(split_batches(batch_of(b"v")))
    group.drain()
    assert sorted(sent) == [(broker.node_id, before) for broker in cluster.followers()]
    assert group.log.last_index == before
    await asyncio.sleep(0)
    assert group.log.last_index == proposal.last
    await cluster.settled()
