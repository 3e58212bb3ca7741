"""A network in memory with its own clock: deterministic, with faults on every link.

Nothing happens until ``advance`` moves the clock. Each direction of each pair is a link of its own,
as over TCP; it can be cut (breaks, and cannot be dialled), stalled (nothing arrives, nothing breaks:
a half-open connection), silenced (the same permanently, until it is dialled again), delayed, or made to drop
frames. The end of a connection also ends the other direction's, as ``Transport`` requests. Its contract holds
unless frames are dropped: TCP does not drop frames, but some tests require tolerance of that.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from raftlog.node.network.framing import HEADER_BYTES
from raftlog.node.network.tcp_links import SMALL_FRAME_BYTES, SMALL_FRAMES_BYTES_MAX, TransportLimits
from raftlog.node.network.transport import FrameReceiver
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

REDIAL_SECONDS = 0.05


@dataclass(slots=True)
class _Link:
    """One direction of one pair."""

    sender: NodeId
    receiver: NodeId
    is_connected: bool = False
    is_cut: bool = False
    is_stalled: bool = False
    is_silent: bool = False  # the open connection delivers nothing, not even its end
    delay_seconds: float = 0.0
    drop_probability: float = 0.0
    life: int = 0  # rises when the connection breaks; frames of an earlier one never arrive
    queue: deque[tuple[float, memoryview]] = field(default_factory=deque)
    queued_bytes: int = 0


class FakeNetwork:
    """All nodes and links of one test."""

    def __init__(self, rng: Random, limits: TransportLimits | None = None) -> None:
        self.now = 0.0
        self.limits = limits or TransportLimits()
        self._rng = rng
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0
        self._links: dict[tuple[NodeId, NodeId], _Link] = {}
        self._nodes: dict[NodeId, FakeTransport] = {}

    def transport(self, node: NodeId) -> FakeTransport:
        """A node's end; called again for the node's next incarnation."""
        return FakeTransport(self, node)

    def advance(self, seconds: float) -> None:
        """Run everything that is due within this time."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = end

    def cut(self, sender: NodeId, receiver: NodeId) -> None:
        """Break this direction, until ``heal``."""
        link = self.link(sender, receiver)
        link.is_cut = True
        self.break_link(link)

    def heal(self, sender: NodeId, receiver: NodeId) -> None:
        """End all faults of this direction."""
        link = self.link(sender, receiver)
        link.is_cut = link.is_stalled = False
        link.delay_seconds = link.drop_probability = 0.0
        self.schedule(0.0, lambda: self._deliver_due(link, link.life))

    def stall(self, sender: NodeId, receiver: NodeId) -> None:
        """Frames queue up and do not arrive, and neither end notices."""
        self.link(sender, receiver).is_stalled = True

    def silence(self, sender: NodeId, receiver: NodeId) -> None:
        """Frames on this connection are lost, and neither end notices; a new connection works."""
        self.link(sender, receiver).is_silent = True

    def delay(self, sender: NodeId, receiver: NodeId, seconds: float) -> None:
        """Frames sent from now on take this time."""
        self.link(sender, receiver).delay_seconds = seconds

    def drop(self, sender: NodeId, receiver: NodeId, probability: float) -> None:
        """Frames sent from now on may be lost, without a break."""
        self.link(sender, receiver).drop_probability = probability

    def link(self, sender: NodeId, receiver: NodeId) -> _Link:
        """The state of one direction, for ``FakeTransport``."""
        return self._links.setdefault((sender, receiver), _Link(sender, receiver))

    def schedule(self, seconds: float, action: Callable[[], None]) -> None:
        """Run the action after this time; actions of one moment run in the order of scheduling."""
        self._event_count += 1
        heapq.heappush(self._events, (self.now + seconds, self._event_count, action))

    def enter(self, transport: FakeTransport) -> None:
        """A node can be dialled."""
        self._nodes[transport.node_id] = transport

    def leave(self, transport: FakeTransport) -> None:
        """A node has ended: the others notice, it does not."""
        if self._nodes.get(transport.node_id) is transport:
            del self._nodes[transport.node_id]
            for link in list(self._links.values()):
                if transport.node_id in (link.sender, link.receiver):
                    self.break_link(link)

    def dial(self, dialler: FakeTransport, link: _Link) -> None:
        """Connect if that is possible now, or retry later, as long as the dialler is running."""
        if (
            self._nodes.get(link.sender) is not dialler
            or link.is_connected
            or link.receiver in dialler.removed
        ):
            return
        listener = self._nodes.get(link.receiver)
        if link.is_cut or link.is_stalled or listener is None:
            self.schedule(REDIAL_SECONDS, lambda: self.dial(dialler, link))
            return
        if link.sender in listener.removed:
            dialler.receiver.peer_refused(link.receiver)
            self.schedule(REDIAL_SECONDS, lambda: self.dial(dialler, link))
            return
        link.is_connected, link.is_silent = True, False
        listener.heard_at[link.sender] = self.now
        dialler.receiver.peer_connected(link.receiver)

    def break_link(self, link: _Link) -> None:
        """End the connection, if there is one; both running ends are notified, and it is dialled again.

        The listener closes the connection that it dialled itself.
        """
        if not link.is_connected:
            return
        link.is_connected = False
        link.life += 1
        link.queue.clear()
        link.queued_bytes = 0
        dialler, listener = self._nodes.get(link.sender), self._nodes.get(link.receiver)
        if dialler is not None:
            self.schedule(REDIAL_SECONDS, lambda: self.dial(dialler, link))
            dialler.receiver.peer_lost(link.receiver)
        if listener is not None:
            listener.receiver.peer_lost(link.sender)
            self.break_link(self.link(link.receiver, link.sender))

    def send(self, link: _Link, frame: memoryview) -> None:
        if self._rng.random() < link.drop_probability or link.is_silent:
            return
        due = self.now + link.delay_seconds
        if link.queue:
            due = max(due, link.queue[-1][0])  # frames never overtake each other
        link.queue.append((due, frame))
        link.queued_bytes += HEADER_BYTES + len(frame)
        life = link.life
        self.schedule(due - self.now, lambda: self._deliver_due(link, life))

    def _deliver_due(self, link: _Link, life: int) -> None:
        if link.is_silent:
            link.queue.clear()
            link.queued_bytes = 0
        while link.life == life and not link.is_stalled and link.queue and link.queue[0][0] <= self.now:
            _, frame = link.queue.popleft()
            link.queued_bytes -= HEADER_BYTES + len(frame)
            listener = self._nodes[link.receiver]
            listener.heard_at[link.sender] = self.now
            listener.receiver.frame_received(link.sender, frame)


class FakeTransport:
    """One node's end of a ``FakeNetwork``; see ``Transport``."""

    receiver: FrameReceiver

    def __init__(self, network: FakeNetwork, node_id: NodeId) -> None:
        self.node_id = node_id
        self.heard_at: dict[NodeId, float] = {}
        self._network = network
        self.removed: set[NodeId] = set()
        self._peers: dict[NodeId, tuple[str, int]] = {}
        self._is_running = False

    async def start(self, receiver: FrameReceiver) -> None:
        """Take part."""
        self.receiver = receiver
        self._is_running = True
        self._network.enter(self)
        for peer in self._peers:
            self._dial(peer)

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Addresses are not used, except that a changed one breaks the connection."""
        if peer == self.node_id:
            raise ValueError(f"peer {peer} is this node itself: set only the other nodes")
        former = self._peers.get(peer)
        self._peers[peer] = (host, port)
        if self._is_running and former is None:
            self._dial(peer)
        elif former not in (None, (host, port)):
            self._network.break_link(self._network.link(self.node_id, peer))

    def refuse_peer(self, peer: NodeId) -> None:
        """It is dialled no more, and refused."""
        self.removed.add(peer)
        self._peers.pop(peer, None)
        self.disconnect(peer)

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Nothing: these peers write no logs."""

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame."""
        limits, length = self._network.limits, sum(map(len, buffers))
        if length > limits.frame_bytes_max:
            raise ValueError(f"frame has {length} bytes: send at most {limits.frame_bytes_max}")
        link = self._network.link(self.node_id, peer)
        if not self._is_running or not link.is_connected:
            return False
        most = limits.queue_bytes_max + (SMALL_FRAMES_BYTES_MAX if length <= SMALL_FRAME_BYTES else 0)
        if link.queued_bytes + HEADER_BYTES + length > most:
            return False
        self._network.send(link, memoryview(b"".join(buffers)))
        return True

    def queued_bytes(self, peer: NodeId) -> int:
        """Bytes that have not arrived yet."""
        return self._network.link(self.node_id, peer).queued_bytes if self._is_running else 0

    def seconds_since_heard(self, peer: NodeId) -> float:
        """By the network's clock."""
        return self._network.now - self.heard_at[peer] if peer in self.heard_at else math.inf

    def reaches(self, peer: NodeId) -> bool:
        """Whether its own link stands: each node is one process."""
        return self._is_running and self._network.link(self.node_id, peer).is_connected

    def disconnect(self, peer: NodeId) -> None:
        """Break both directions."""
        for ends in ((self.node_id, peer), (peer, self.node_id)):
            self._network.break_link(self._network.link(*ends))

    async def stop(self) -> None:
        self._is_running = False
        self._network.leave(self)

    def _dial(self, peer: NodeId) -> None:
        link = self._network.link(self.node_id, peer)
        self._network.schedule(0.0, lambda: self._network.dial(self, link))
