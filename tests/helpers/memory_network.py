"""A network in memory that keeps the contract of ``Transport``; links can be cut."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from raftlog.node.network.transport import FrameReceiver
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId


class MemoryNetwork:
    """The links between nodes of one process. A cut link loses frames and notifies both ends."""

    def __init__(self) -> None:
        self.receivers: dict[NodeId, FrameReceiver] = {}
        self._cut: set[frozenset[NodeId]] = set()

    def transport(self, node: NodeId) -> MemoryTransport:
        """One node's end."""
        return MemoryTransport(self, node)

    def stands(self, one: NodeId, other: NodeId) -> bool:
        """Whether frames pass between two nodes."""
        return {one, other} <= self.receivers.keys() and frozenset((one, other)) not in self._cut

    def isolate(self, node: NodeId) -> None:
        """Cut all links of a node."""
        for other in list(self.receivers):
            if other != node:
                self.cut(node, other)

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Cut one link."""
        if self.stands(one, other):
            self._cut.add(frozenset((one, other)))
            self.receivers[one].peer_lost(other)
            self.receivers[other].peer_lost(one)

    def lose(self, one: NodeId, other: NodeId) -> None:
        """A link breaks and reconnects."""
        if self.stands(one, other):
            for node, peer in ((one, other), (other, one)):
                self.receivers[node].peer_lost(peer)
                self.receivers[node].peer_connected(peer)

    def heal(self) -> None:
        """Reconnect all links."""
        repaired, self._cut = self._cut, set()
        for one, other in map(tuple, repaired):
            if self.stands(one, other):
                self.receivers[one].peer_connected(other)
                self.receivers[other].peer_connected(one)


class MemoryTransport:
    """One node's links."""

    def __init__(self, network: MemoryNetwork, node: NodeId) -> None:
        self._network = network
        self._node = node

    async def start(self, receiver: FrameReceiver) -> None:
        self._network.receivers[self._node] = receiver
        for other in list(self._network.receivers):
            if other != self._node:
                receiver.peer_connected(other)
                self._network.receivers[other].peer_connected(self._node)

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Addresses are not used."""

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Deliver in a later turn of the loop, if the link is connected then, too."""
        if not self._network.stands(self._node, peer):
            return False
        frame = memoryview(b"".join(buffers))
        asyncio.get_running_loop().call_soon(self._deliver, peer, frame)
        return True

    def queued_bytes(self, peer: NodeId) -> int:
        return 0

    def disconnect(self, peer: NodeId) -> None:
        """A link in memory reconnects at once."""
        self._network.lose(self._node, peer)

    def seconds_since_heard(self, peer: NodeId) -> float:
        """A link in memory is never silent."""
        return 0.0 if self._network.stands(self._node, peer) else math.inf

    async def stop(self) -> None:
        self._network.receivers.pop(self._node, None)
        for other, receiver in self._network.receivers.items():
            if other != self._node:
                receiver.peer_lost(self._node)

    def _deliver(self, peer: NodeId, frame: memoryview) -> None:
        if self._network.stands(self._node, peer):
            self._network.receivers[peer].frame_received(self._node, frame)
