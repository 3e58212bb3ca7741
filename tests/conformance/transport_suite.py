"""What every ``Transport`` must do, told once: the real one and the fake one inherit these tests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from raftlog.node.network.framing import HEADER_BYTES
from raftlog.node.network.tcp_links import SMALL_FRAME_BYTES, SMALL_FRAMES_BYTES_MAX, TransportLimits
from raftlog.node.network.transport import Transport
from raftlog.types import NodeId
from tests.helpers.recording_receiver import RecordingReceiver

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
LIMITS = TransportLimits(frame_bytes_max=300_000, queue_bytes_max=400_000, redial_ms_min=5, redial_ms_max=20)


class Node:
    """A transport and what it reported."""

    def __init__(self, node_id: NodeId, transport: Transport) -> None:
        self.node_id = node_id
        self.transport = transport
        self.receiver = RecordingReceiver()


class World(Protocol):
    """Makes nodes of one kind of transport, and lets time pass."""

    async def node(self, node_id: NodeId) -> Node:
        """A started node."""

    async def introduce(self, node: Node, peer: Node) -> None:
        """Tell a node where its peer is."""

    def silence(self, node: Node, peer: Node) -> None:
        """The connection that ``node`` has dialled to ``peer`` passes nothing more and stays open."""

    def cut(self, node: Node, peer: Node) -> None:
        """The connection that ``node`` has dialled to ``peer`` breaks."""

    async def until(self, node: Node, condition: Callable[[], bool]) -> None:
        """Let things happen until the condition holds; raise when it does not within reason."""

    async def close(self) -> None:
        """Stop all nodes."""


class TransportSuite:
    """Inherit, and say how to run a coroutine and how to make a world."""

    def run(self, story: Callable[[World], Awaitable[None]]) -> None:
        """Run one test on an event loop, and clean up."""
        asyncio.run(self._run(story))

    def world(self) -> World:
        """A new one for each test."""
        raise NotImplementedError

    async def _run(self, story: Callable[[World], Awaitable[None]]) -> None:
        world = self.world()
        try:
            await story(world)
        finally:
            await world.close()

    async def pair(self, world: World) -> tuple[Node, Node]:
        """Two nodes that are connected both ways."""
        one, two = await world.node(ONE), await world.node(TWO)
        await world.introduce(one, two)
        await world.introduce(two, one)
        await world.until(one, lambda: one.receiver.count("connected", TWO) == 1)
        await world.until(two, lambda: two.receiver.count("connected", ONE) == 1)
        return one, two

    def test_frames_arrive_whole_and_in_order_from_who_sent_them(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            sent = [b"%d" % number * (number % 70) for number in range(1000)]
            sent[500] = bytes(100_000)
            for frame in sent:
                assert one.transport.send(TWO, (frame[:3], memoryview(frame)[3:]))
            await world.until(two, lambda: len(two.receiver.frames) == len(sent))
            assert two.receiver.frames == [(ONE, frame) for frame in sent]

        self.run(story)

    def test_a_received_frame_is_the_receivers_to_keep(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            for round_number in range(20):
                one.transport.send(TWO, (bytes([round_number]) * 50,))
                one.transport.send(TWO, (bytes([round_number]) * 100_000,))
                await world.until(two, lambda: len(two.receiver.frames) == 2 * round_number + 2)  # noqa: B023
            assert [bytes(view) for view in two.receiver.views] == two.receiver.payloads()

        self.run(story)

    def test_frames_of_both_directions_do_not_mix(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            assert one.transport.send(TWO, (b"to two",))
            assert two.transport.send(ONE, (b"to one",))
            await world.until(one, lambda: len(one.receiver.frames) == 1)
            await world.until(two, lambda: len(two.receiver.frames) == 1)
            assert one.receiver.frames == [(TWO, b"to one")]
            assert two.receiver.frames == [(ONE, b"to two")]

        self.run(story)

    def test_nothing_can_be_sent_to_a_peer_that_is_not_connected(self) -> None:
        async def story(world: World) -> None:
            one = await world.node(ONE)
            assert not one.transport.send(TWO, (b"nobody",))
            assert one.transport.queued_bytes(TWO) == 0
            assert one.transport.seconds_since_heard(TWO) == math.inf

        self.run(story)

    def test_a_frame_above_the_limit_is_the_senders_mistake(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            with pytest.raises(ValueError, match="frame has"):
                one.transport.send(TWO, (bytes(LIMITS.frame_bytes_max + 1),))
            assert one.transport.send(TWO, (bytes(LIMITS.frame_bytes_max),))
            await world.until(two, lambda: len(two.receiver.frames) == 1)

        self.run(story)

    def test_a_queue_takes_no_more_than_its_bound_and_recovers(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            frame = bytes(100_000)
            assert [one.transport.send(TWO, (frame,)) for _ in range(5)] == [True, True, True, False, False]
            assert 300_000 <= one.transport.queued_bytes(TWO) <= LIMITS.queue_bytes_max
            await world.until(two, lambda: len(two.receiver.frames) == 3)
            assert one.transport.send(TWO, (frame,))
            await world.until(two, lambda: len(two.receiver.frames) == 4)

        self.run(story)

    # requirement: N2
    def test_small_frames_find_room_behind_large_ones(self) -> None:
        """Heartbeats and answers: records that wait for a slow peer must not cost a leader its place."""

        async def story(world: World) -> None:
            one, two = await self.pair(world)
            while one.transport.send(TWO, (bytes(100_000),)):
                pass
            while one.transport.send(TWO, (bytes(SMALL_FRAME_BYTES + 1),)):
                pass
            count = SMALL_FRAMES_BYTES_MAX // (SMALL_FRAME_BYTES + HEADER_BYTES)
            sent = [one.transport.send(TWO, (bytes(SMALL_FRAME_BYTES),)) for _ in range(count)]
            assert all(sent)
            assert one.transport.queued_bytes(TWO) <= LIMITS.queue_bytes_max + SMALL_FRAMES_BYTES_MAX
            while one.transport.send(TWO, (bytes(SMALL_FRAME_BYTES),)):
                pass
            assert one.transport.queued_bytes(TWO) <= LIMITS.queue_bytes_max + SMALL_FRAMES_BYTES_MAX
            await world.until(two, lambda: len(two.receiver.frames) > count)

        self.run(story)

    def test_a_peer_that_stops_is_lost_and_found_again(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            await two.transport.stop()
            await world.until(one, lambda: one.receiver.count("lost", TWO) == 2)  # to it, and from it
            assert not two.receiver.count("lost", ONE)
            assert not one.transport.send(TWO, (b"gone",))
            again = await world.node(TWO)
            await world.introduce(again, one)
            await world.introduce(one, again)
            await world.until(one, lambda: one.receiver.count("connected", TWO) == 2)
            assert one.transport.send(TWO, (b"welcome back",))
            await world.until(again, lambda: len(again.receiver.frames) == 1)
            assert one.receiver.count("lost", TWO) == 2

        self.run(story)

    def test_disconnecting_breaks_both_ways_and_dialling_goes_on(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            one.transport.disconnect(TWO)
            await world.until(one, lambda: one.receiver.count("connected", TWO) == 2)
            await world.until(two, lambda: two.receiver.count("connected", ONE) == 2)
            assert one.receiver.count("lost", TWO) == 2
            assert two.receiver.count("lost", ONE) == 2
            assert one.transport.send(TWO, (b"again",))
            await world.until(two, lambda: len(two.receiver.frames) == 1)

        self.run(story)

    # requirement: ST4
    def test_a_silent_connection_is_told_to_nobody_until_it_is_disconnected(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            world.silence(one, two)
            assert one.transport.send(TWO, (b"swallowed",))
            assert two.transport.send(ONE, (b"passes",))
            await world.until(one, lambda: len(one.receiver.frames) == 1)
            assert not two.receiver.frames
            assert not one.receiver.count("lost", TWO)
            two.transport.disconnect(ONE)
            await world.until(one, lambda: one.receiver.count("connected", TWO) == 2)
            await world.until(two, lambda: two.receiver.count("connected", ONE) == 2)
            assert one.transport.send(TWO, (b"on a new connection",))
            await world.until(two, lambda: len(two.receiver.frames) == 1)
            assert two.receiver.payloads() == [b"on a new connection"]

        self.run(story)

    # requirement: ST4
    def test_the_end_of_a_peers_connection_ends_ours_to_it(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            world.cut(two, one)
            await world.until(one, lambda: one.receiver.count("connected", TWO) == 2)
            await world.until(two, lambda: two.receiver.count("connected", ONE) == 2)
            assert (one.receiver.count("lost", TWO), two.receiver.count("lost", ONE)) == (2, 2)
            assert one.transport.send(TWO, (b"again",))
            await world.until(two, lambda: len(two.receiver.frames) == 1)

        self.run(story)

    def test_a_peer_that_speaks_is_heard(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            one.transport.send(TWO, (b"alive",))
            await world.until(two, lambda: len(two.receiver.frames) == 1)
            assert 0 <= two.transport.seconds_since_heard(ONE) < 5

        self.run(story)

    def test_a_node_is_no_peer_of_its_own(self) -> None:
        async def story(world: World) -> None:
            one = await world.node(ONE)
            with pytest.raises(ValueError, match="this node itself"):
                one.transport.set_peer(ONE, "127.0.0.1", 1)

        self.run(story)

    # requirement: F3
    def test_a_removed_peer_is_refused_and_told_so(self) -> None:
        async def story(world: World) -> None:
            one, two = await self.pair(world)
            one.transport.refuse_peer(TWO)
            await world.until(
                two, lambda: two.receiver.count("refused", ONE) >= 2
            )  # it dials again and again
            await world.until(one, lambda: one.receiver.count("lost", TWO) == 2)
            assert not one.transport.send(TWO, (b"gone",))
            assert not two.transport.send(ONE, (b"gone",))
            await world.introduce(one, two)
            refused = two.receiver.count("refused", ONE)
            await world.until(two, lambda: two.receiver.count("refused", ONE) >= refused + 5)
            assert not one.transport.send(TWO, (b"gone",))
            assert (one.receiver.count("connected", TWO), two.receiver.count("connected", ONE)) == (1, 1)
            assert not one.receiver.frames

        self.run(story)

    # requirement: F3
    def test_a_removed_peer_that_was_not_dialled_is_refused(self) -> None:
        async def story(world: World) -> None:
            one, two = await world.node(ONE), await world.node(TWO)
            await world.introduce(two, one)
            await world.until(two, lambda: two.receiver.count("connected", ONE) == 1)
            assert two.transport.send(ONE, (b"arrives",))
            await world.until(one, lambda: len(one.receiver.frames) == 1)
            one.transport.refuse_peer(TWO)
            await world.until(two, lambda: two.receiver.count("refused", ONE) >= 1)
            assert not two.transport.send(ONE, (b"gone",))

        self.run(story)

    # requirement: F3
    def test_a_peer_that_was_removed_before_it_came_is_refused(self) -> None:
        async def story(world: World) -> None:
            one, two = await world.node(ONE), await world.node(TWO)
            one.transport.refuse_peer(TWO)
            await world.introduce(two, one)
            await world.until(two, lambda: two.receiver.count("refused", ONE) >= 1)
            assert not two.receiver.count("connected", ONE)
            assert not one.receiver.events

        self.run(story)

    def test_after_stopping_nothing_is_sent_and_stopping_again_is_harmless(self) -> None:
        async def story(world: World) -> None:
            one, _ = await self.pair(world)
            await one.transport.stop()
            await one.transport.stop()
            assert not one.transport.send(TWO, (b"too late",))
            assert not one.receiver.count("lost", TWO)

        self.run(story)

    def test_three_nodes_know_each_other_apart(self) -> None:
        async def story(world: World) -> None:
            nodes = [await world.node(node_id) for node_id in (ONE, TWO, THREE)]
            for node in nodes:
                for peer in nodes:
                    if peer is not node:
                        await world.introduce(node, peer)
            for node in nodes:
                await world.until(node, lambda: len(node.receiver.events) == 2)  # noqa: B023
                for peer in nodes:
                    if peer is not node:
                        assert node.transport.send(
                            peer.node_id, (b"%d to %d" % (node.node_id, peer.node_id),)
                        )
            for node in nodes:
                await world.until(node, lambda: len(node.receiver.frames) == 2)  # noqa: B023
                expected = {(peer, b"%d to %d" % (peer, node.node_id)) for peer in (ONE, TWO, THREE)}
                assert set(node.receiver.frames) == {pair for pair in expected if pair[0] != node.node_id}

        self.run(story)
