"""Brokers whose event loops take long: they keep their links, and their groups become quiescent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from partitions.values import QUORUM
from raftlog.core.membership import Membership
from raftlog.node.codec import FrameKind, decode_heartbeats, split_frame
from raftlog.node.group_host import HostSettings
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time_with
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
