"""Backlogs are applied in slices, slow brokers keep their links, far followers catch up at a rate."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import pytest

from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.node.catch_up import FAR_BYTES
from raftlog.node.codec import FrameKind, decode_heartbeats, split_frame
from raftlog.node.group.applier import BATCH_BYTES, READ_BYTES, SLICE_BYTES
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import HostSettings
from raftlog.records.batch import Batch, split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId, Index, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import CheckedMachine, ClusterNode, Listener, NodeCluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import VirtualLoop

GROUPS = 3
SLICE = SLICE_BYTES // BATCH_BYTES  # small batches
BATCHES = 8 * SLICE
ONE_SEGMENT = LogSettings(segment_bytes=64 << 20, index_interval_bytes=64 << 10)


async def filled(nodes: int) -> NodeCluster:
    """A cluster whose groups have so many small batches, and no state that covers any of them."""
    cluster = NodeCluster(nodes=nodes, groups=GROUPS, log_settings=ONE_SEGMENT)
    await cluster.start()
    for group_id in cluster.group_ids:
        group = cluster.leading(group_id).groups[group_id]
        for _ in range(0, BATCHES, 100):
            group.propose(split_batches(100 * batch_of(b"v")))
    await cluster.settled()
    return cluster


async def restarted(
    cluster: NodeCluster, broker: ClusterNode, patch: pytest.MonkeyPatch
) -> list[Counter[int]]:
    """Kill the broker and start it again: what each turn of the loop applied, in batches by machine."""
    broker.crash()
    turns: dict[int, Counter[int]] = defaultdict(Counter)
    apply = CheckedMachine.apply

    def counted(machine: CheckedMachine, entry: Batch) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        turns[loop.turns][id(machine)] += 1
        apply(machine, entry)

    with patch.context() as context:
        context.setattr(CheckedMachine, "apply", counted)
        await broker.start()
        await cluster.until(lambda: all(group.applied_index >= BATCHES for group in broker.groups.values()))
    return list(turns.values())


# requirement: ST4
async def test_a_backlog_is_applied_one_slice_of_one_group_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    most = SLICE + READ_BYTES // len(batch_of(b"v"))
    turns = await restarted(cluster, broker, monkeypatch)
    assert max(count for turn in turns for count in turn.values()) <= most
    assert max(map(len, turns)) == 1
    await cluster.settled()
    await cluster.stop()


async def in_its_backlog(broker: ClusterNode, patch: pytest.MonkeyPatch) -> RaftGroup[None]:
    """Kill the broker and start it again, up to the first slice of what a group has to apply."""
    broker.crash()
    begun, apply = asyncio.Event(), CheckedMachine.apply

    def noted(machine: CheckedMachine, entry: Batch) -> None:
        begun.set()
        apply(machine, entry)

    with patch.context() as context:
        context.setattr(CheckedMachine, "apply", noted)
        await broker.start()
        await begun.wait()
    (group,) = (group for group in broker.groups.values() if group.applied_index >= 0)
    assert 0 < group.applied_index < BATCHES
    return group


# requirement: RP4
async def test_reads_are_confirmed_when_the_backlog_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    assert group.is_leader
    assert group.commit_index >= BATCHES
    index = await group.confirm_read()
    assert index >= BATCHES
    assert group.applied_index >= index
    await cluster.settled()
    await cluster.stop()


# requirement: RP4
async def test_a_leader_is_ready_when_its_backlog_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    advanced, tell = [], Listener.commit_advanced

    def noted(listener: Listener, commit_index: Index) -> None:
        group = broker.groups[listener._group_id]
        advanced.append((commit_index, group.applied_index))
        tell(listener, commit_index)

    monkeypatch.setattr(Listener, "commit_advanced", noted)
    group = await in_its_backlog(broker, monkeypatch)
    assert not group.is_ready
    await group.ready()
    assert group.applied_index >= BATCHES
    assert advanced
    assert all(told <= applied for told, applied in advanced), "the table holds what the listener hears of"
    await cluster.settled()
    await cluster.stop()


# requirement: ST4
async def test_news_does_not_hasten_the_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    applied = group.applied_index
    for _ in range(5):
        group.propose(split_batches(batch_of(b"new")))
        group.drain()
    assert group.applied_index == applied
    await cluster.settled()
    assert group.applied_index >= BATCHES + 5
    await cluster.stop()


# requirement: ST2
async def test_a_replica_that_closes_in_its_backlog_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    applied = group.applied_index
    await broker.host.stop()
    broker.is_up = False
    await broker.start()
    assert broker.groups[group.group_id].applied_index >= applied
    await cluster.settled()
    await cluster.stop()


# requirement: ST4
async def test_a_backlog_waits_for_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(nodes=1)
    (broker,) = cluster.up
    group = await in_its_backlog(broker, monkeypatch)
    broker.filesystem.fails_open = lambda path: path.endswith(".log")
    for _ in range(GROUPS):
        broker.filesystem.held.make_room()
    await asyncio.sleep(30)
    applied = group.applied_index
    assert applied < BATCHES
    assert group.stopped is None
    assert not group.is_quiescent
    assert group.group_id in broker.host._awake
    broker.filesystem.fails_open = lambda path: False
    await cluster.settled()
    assert group.applied_index >= BATCHES
    await cluster.stop()


GROUP = GroupId(1)
EVERY = frozenset(map(NodeId, (1, 2, 3)))


def losses_of(cluster: NodeCluster, slow: ClusterNode) -> list[float]:
    """When the others take it for lost, from now on."""
    lost: list[float] = []
    for broker in cluster.up:
        if broker is not slow:
            _note(broker.host.peer_lost, slow.node_id, lost, broker)
    return lost


def _note(tell: Callable[[NodeId], None], slow: NodeId, lost: list[float], broker: ClusterNode) -> None:
    def peer_lost(peer: NodeId) -> None:
        if peer == slow:
            lost.append(asyncio.get_running_loop().time())
        tell(peer)

    broker.host.peer_lost = peer_lost  # type: ignore[method-assign]


async def sends_once_a_turn(cluster: NodeCluster, slow: ClusterNode, turn_s: float, for_s: float) -> None:
    """Messages of the broker leave at the end of a turn, on the connection for which they were meant."""
    send, loop = slow.transport.send, asyncio.get_running_loop()
    waiting: list[tuple[int, NodeId, list[bytes]]] = []

    def queue(peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        link = cluster.network.link(slow.node_id, peer)
        if link.is_connected:
            waiting.append((link.life, peer, [bytes(each) for each in buffers]))
        return link.is_connected

    slow.transport.send = queue  # type: ignore[method-assign]
    end = loop.time() + for_s
    while loop.time() < end:
        await asyncio.sleep(turn_s)
        due, waiting[:] = list(waiting), []
        for life, peer, buffers in due:
            if cluster.network.link(slow.node_id, peer).life == life:
                send(peer, buffers)
    slow.transport.send = send  # type: ignore[method-assign]


# requirement: ST4
@pytest.mark.parametrize("turn_s", [0.6, 1.0])
@in_virtual_time_with(lambda: NodeCluster(7, groups=20))
async def test_a_broker_that_is_slow_from_one_moment_on_keeps_its_next_link(
    cluster: NodeCluster, turn_s: float
) -> None:
    """The silence for which its first link is ended is its pace."""
    await cluster.quiescent()
    slow = cluster.brokers[cluster.nodes[0]]
    lost, began = losses_of(cluster, slow), asyncio.get_running_loop().time()
    await sends_once_a_turn(cluster, slow, turn_s, 60)
    assert [at for at in lost if at < began + 30]
    assert not [at for at in lost if at > began + 30]
    assert all(group.is_quiescent for broker in cluster.up for group in broker.groups.values())


# requirement: ST4
@in_virtual_time_with(lambda: NodeCluster(7, nodes=4, voters=3, settings=HostSettings(quiesce_ticks=20)))
async def test_a_learner_that_missed_the_last_heartbeat_finds_its_leader_again(cluster: NodeCluster) -> None:
    leader, dropped = cluster.leading(), 0
    await leader.replicas[GROUP].append(batch_of(b"1"), acks=QUORUM, timeout_ms=1000)
    await leader.groups[GROUP].change_membership(Membership(EVERY, frozenset({NodeId(4)})))
    await cluster.quiescent()
    send = leader.transport.send

    def drop_the_last(peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        nonlocal dropped
        kind, _, payload = split_frame(memoryview(b"".join(map(bytes, buffers))))
        beats = decode_heartbeats(payload) if kind is FrameKind.HEARTBEATS else ()
        if peer == 4 and not dropped and any(beat.quiesces for _, beat in beats):
            dropped += 1
            return False  # as with a full queue
        return send(peer, buffers)

    leader.transport.send = drop_the_last  # type: ignore[method-assign]
    await leader.replicas[GROUP].append(batch_of(b"2"), acks=QUORUM, timeout_ms=1000)
    await asyncio.sleep(60)
    assert dropped == 1
    assert cluster.brokers[NodeId(4)].groups[GROUP].leader == leader.node_id


# requirement: ST4
@in_virtual_time_with(lambda: NodeCluster(7, settings=HostSettings(quiesce_ticks=20)))
async def test_a_replica_without_its_log_tells_a_quiescent_leader(cluster: NodeCluster) -> None:
    await cluster.leading().replicas[GROUP].append(batch_of(b"1"), acks=QUORUM, timeout_ms=1000)
    await cluster.quiescent()
    leader, follower = cluster.leading(), cluster.followers()[0]
    await follower.host.close_group(GROUP)
    follower.lose_disk()
    follower._open(GROUP)
    await asyncio.sleep(60)
    group = follower.groups[GROUP]
    assert (group.leader, group.is_rejoining) == (leader.node_id, False)


LARGE = LogSettings(segment_bytes=16 << 20, index_interval_bytes=64 << 10)
FAR_BATCH_BYTES = 512 << 10
FAR_BATCHES = 56
RATE = 5 << 20


async def append(cluster: NodeCluster, value: bytes) -> None:
    """One batch, acknowledged by a quorum."""
    await cluster.leading().replicas[GROUP].append(batch_of(value), acks=QUORUM, timeout_ms=5000)


@pytest.mark.parametrize(("rate", "at_least_s", "at_most_s"), [(RATE, 2.5, 8.0), (0, 0.0, 2.0)])
async def test_a_replica_far_behind_is_brought_up_at_a_bounded_rate(
    rate: int, at_least_s: float, at_most_s: float
) -> None:
    assert (FAR_BATCHES * FAR_BATCH_BYTES - FAR_BYTES) / RATE > 2.5
    settings = HostSettings(catch_up_bytes_per_s=rate)
    cluster = NodeCluster(3, settings=settings, log_settings=LARGE)
    await cluster.start()
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(FAR_BATCHES):
        await append(cluster, bytes(FAR_BATCH_BYTES))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await behind.start()
    waits = []
    while not cluster.is_settled(GROUP):
        asked = loop.time()
        await append(cluster, b"meanwhile")
        waits.append(loop.time() - asked)
        await asyncio.sleep(0.1)
        assert loop.time() - began < 60
    took_s = loop.time() - began
    assert at_least_s <= took_s <= at_most_s, took_s
    assert max(waits) < 0.5, waits
    await cluster.stop()


@pytest.mark.parametrize("batches", [3, FAR_BATCHES])  # read at once, and on a thread
@in_virtual_time_with(lambda: NodeCluster(3, log_settings=LARGE))
async def test_a_leader_without_descriptors_brings_a_replica_up_later(
    cluster: NodeCluster, batches: int
) -> None:
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(batches):
        await append(cluster, bytes(FAR_BATCH_BYTES // batches))
    leader, refused = cluster.leading(), list[str]()

    def fails(path: str) -> bool:
        is_log = path.endswith(".log")
        refused.extend([path] * is_log)
        return is_log

    leader.filesystem.fails_open = fails
    await behind.start()
    await cluster.until(lambda: len(refused) > 3)
    leader.filesystem.fails_open = lambda path: False
    await cluster.settled()
    assert cluster.leading() is leader
