"""Brokers with slow event loops keep their links; far followers catch up at a bounded rate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.node.catch_up import FAR_BYTES
from raftlog.node.codec import FrameKind, decode_heartbeats, split_frame
from raftlog.node.group_host import HostSettings
from raftlog.storage.filesystem import Buffer
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of

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
    """What the broker sends leaves at the end of a turn, on the connection for which it was meant."""
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
@in_virtual_time_with(lambda: NodeCluster(7, nodes=4, voters=3, settings=HostSettings(quiet_ticks=20)))
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
@in_virtual_time_with(lambda: NodeCluster(7, settings=HostSettings(quiet_ticks=20)))
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
BATCH_BYTES = 512 << 10
BATCHES = 56
RATE = 5 << 20


async def append(cluster: NodeCluster, value: bytes) -> None:
    """One batch, acknowledged by a quorum."""
    await cluster.leading().replicas[GROUP].append(batch_of(value), acks=QUORUM, timeout_ms=5000)


@pytest.mark.parametrize(("rate", "at_least_s", "at_most_s"), [(RATE, 2.5, 8.0), (0, 0.0, 2.0)])
@in_virtual_time
async def test_a_replica_far_behind_is_brought_up_at_a_bounded_rate(
    rate: int, at_least_s: float, at_most_s: float
) -> None:
    assert (BATCHES * BATCH_BYTES - FAR_BYTES) / RATE > 2.5
    settings = HostSettings(catch_up_bytes_per_s=rate)
    cluster = NodeCluster(3, settings=settings, log_settings=LARGE)
    await cluster.start()
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(BATCHES):
        await append(cluster, bytes(BATCH_BYTES))
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


@pytest.mark.parametrize("batches", [3, BATCHES])  # read at once, and on a thread
@in_virtual_time_with(lambda: NodeCluster(3, log_settings=LARGE))
async def test_a_leader_without_descriptors_brings_a_replica_up_later(
    cluster: NodeCluster, batches: int
) -> None:
    behind = cluster.followers()[-1]
    behind.crash()
    for _ in range(batches):
        await append(cluster, bytes(BATCH_BYTES // batches))
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
