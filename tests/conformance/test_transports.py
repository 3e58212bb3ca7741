"""The transports that pass the suite: TCP under asyncio and under uvloop, and the fake one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import uvloop

from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.types import NodeId
from tests.conformance.transport_suite import LIMITS, Node, TransportSuite, World
from tests.helpers.fake_transport import FakeNetwork
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.tcp_proxy import TcpProxy


class TcpWorld:
    """Real sockets on loopback, through a proxy for each direction of each pair."""

    def __init__(self) -> None:
        self._transports: list[TcpTransport] = []
        self._proxies: dict[tuple[NodeId, NodeId], TcpProxy] = {}

    async def node(self, node_id: NodeId) -> Node:
        transport = TcpTransport(
            node_id, "cluster", b"a secret of the cluster", "127.0.0.1", 0, rng=Random(node_id), limits=LIMITS
        )
        self._transports.append(transport)
        node = Node(node_id, transport)
        await transport.start(node.receiver)
        return node

    async def introduce(self, node: Node, peer: Node) -> None:
        assert isinstance(peer.transport, TcpTransport)
        if former := self._proxies.get((node.node_id, peer.node_id)):
            await former.stop()
        proxy = self._proxies[node.node_id, peer.node_id] = TcpProxy()
        await proxy.start(peer.transport.port)
        node.transport.set_peer(peer.node_id, "127.0.0.1", proxy.port)

    def silence(self, node: Node, peer: Node) -> None:
        self._proxies[node.node_id, peer.node_id].silence()

    def cut(self, node: Node, peer: Node) -> None:
        self._proxies[node.node_id, peer.node_id].cut()

    async def until(self, node: Node, condition: Callable[[], bool]) -> None:
        await node.receiver.until(condition)

    async def close(self) -> None:
        for transport in self._transports:
            await transport.stop()
        for proxy in self._proxies.values():
            await proxy.stop()


class FakeWorld:
    """A network in memory."""

    def __init__(self) -> None:
        self._network = FakeNetwork(Random(1), LIMITS)

    async def node(self, node_id: NodeId) -> Node:
        node = Node(node_id, self._network.transport(node_id))
        await node.transport.start(node.receiver)
        return node

    async def introduce(self, node: Node, peer: Node) -> None:
        node.transport.set_peer(peer.node_id, "127.0.0.1", 1)

    def silence(self, node: Node, peer: Node) -> None:
        self._network.silence(node.node_id, peer.node_id)

    def cut(self, node: Node, peer: Node) -> None:
        self._network.break_link(self._network.link(node.node_id, peer.node_id))

    async def until(self, node: Node, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self._network.advance(0.001)
        raise TimeoutError("a second of the network's time was not enough")

    async def close(self) -> None:
        pass


class LoopWorld(FakeWorld):
    """The same in the time of the running loop."""

    def __init__(self) -> None:
        self._network = LoopNetwork(Random(1), LIMITS)

    async def until(self, node: Node, condition: Callable[[], bool]) -> None:
        await node.receiver.until(condition)


class TestTcpTransport(TransportSuite):
    def world(self) -> World:
        return TcpWorld()


class TestTcpTransportUnderUvloop(TestTcpTransport):
    def run(self, story: Callable[[World], Awaitable[None]]) -> None:
        uvloop.run(self._run(story))


class TestFakeTransport(TransportSuite):
    def world(self) -> World:
        return FakeWorld()


class TestFakeTransportInTheTimeOfALoop(TransportSuite):
    def world(self) -> World:
        return LoopWorld()
