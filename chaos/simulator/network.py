"""A network that keeps the contract of ``Transport`` and nothing beyond it.

Each direction of each pair has a connection of its own, as over TCP: frames arrive in order while
it lasts, late, and what is under way when it breaks is lost. A blocked direction either breaks its
connection or holds the frames until it opens again, as retransmission does. Nothing promises that
a Raft message is delivered once: with ``replay_odds`` old ones arrive again after a reconnect.

Decides: when a frame arrives. Leaves to others: when directions are blocked (``faults``).
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chaos.simulator.event_loop import Process, SimulatedLoop
from raftlog.node.codec import FrameKind
from raftlog.node.transport import FrameReceiver
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

REDIAL_S_MIN, REDIAL_S_MAX = 0.05, 1.0
REMEMBERED_FRAMES = 60
REPLAYABLE = (FrameKind.RAFT, FrameKind.HEARTBEATS, FrameKind.HEARTBEAT_REPLIES)

Direction = tuple[NodeId, NodeId]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOdds:
    """How bad the network is; drawn for every seed."""

    latency_s: float
    jitter_s: float
    refusal_odds: float  # of a frame, as by a full queue
    replay_odds: float  # of each remembered frame, at a reconnect


@dataclass(eq=False, slots=True)
class _Connection:
    sender: SimulatedTransport
    receiver: SimulatedTransport
    is_open: bool = True
    free_at: float = 0.0
    held: list[bytes] = field(default_factory=list)


class SimulatedNetwork:
    """All links. ``on_frame`` sees every frame when it leaves, ``on_arrival`` when it is received."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, odds: NetworkOdds) -> None:
        self.loop = loop
        self.rng = rng
        self.odds = odds
        self.breaks = 0
        self.is_calm = False
        self.on_frame: Callable[[NodeId, NodeId, bytes], None] = lambda sender, to, frame: None
        self.on_arrival: Callable[[NodeId, NodeId, bytes], None] = lambda sender, to, frame: None
        self.live: dict[NodeId, SimulatedTransport] = {}
        self._blocked: dict[Direction, bool] = {}  # whether frames are held
        self._sent: dict[Direction, deque[bytes]] = {}
        self._connections: dict[Direction, _Connection] = {}

    def transport(self, node: NodeId, process: Process) -> SimulatedTransport:
        """One process's end."""
        return SimulatedTransport(self, node, process)

    def latency(self) -> float:
        """Of one frame."""
        return self.odds.latency_s + self.odds.jitter_s * self.rng.random() ** 4

    def is_blocked(self, sender: NodeId, to: NodeId) -> bool:
        """Whether nothing passes from one to the other."""
        return (sender, to) in self._blocked

    def block(self, directions: Sequence[Direction], *, holds: bool) -> None:
        """Let nothing pass; what is sent is held back, or the connections break."""
        for direction in directions:
            self._blocked[direction] = holds
            if not holds:
                self.break_connection(direction)

    def heal(self) -> None:
        """Let everything pass again; what was held arrives now."""
        healed, self._blocked = self._blocked, {}
        for direction in healed:
            connection = self._connections.get(direction)
            if connection is not None:
                held, connection.held = connection.held, []
                for frame in held:  # before what is still under way: it was sent before
                    self.loop.later_in(connection.receiver.process, 0.0, self._deliver, connection, frame)

    def break_connection(self, direction: Direction) -> None:
        """Lose what is under way in one direction; both ends are told, and it is dialled again."""
        connection = self._connections.pop(direction, None)
        if connection is None:
            return
        self.breaks += 1
        connection.is_open = False
        sender, receiver = connection.sender, connection.receiver
        self.loop.later_in(sender.process, self.latency(), sender.lost, receiver.node)
        self.loop.later_in(receiver.process, self.latency(), receiver.told_lost, sender.node)
        self.redial(sender, receiver.node, REDIAL_S_MIN)

    def process_ended(self, transport: SimulatedTransport, *, silently: bool) -> None:
        """A process is gone. A killed one's connections are reset, a machine without power is silent."""
        if self.live.get(transport.node) is transport:
            del self.live[transport.node]
        for direction, connection in list(self._connections.items()):
            if transport in (connection.sender, connection.receiver):
                if silently:
                    connection.held.clear()
                else:
                    self.break_connection(direction)

    def started(self, transport: SimulatedTransport) -> None:
        """A process listens; what its earlier life had open is gone now at the latest."""
        for direction, connection in list(self._connections.items()):
            ends = (connection.sender, connection.receiver)
            if transport.node in (ends[0].node, ends[1].node) and transport not in ends:
                self.break_connection(direction)
        self.live[transport.node] = transport

    # Dialling.

    def redial(self, transport: SimulatedTransport, peer: NodeId, pause_s: float) -> None:
        """Try to connect after a pause, for ever."""
        pause_s *= 1 + self.rng.random() / 2
        self.loop.later_in(transport.process, pause_s, self._dial, transport, peer, pause_s)

    def _dial(self, transport: SimulatedTransport, peer: NodeId, pause_s: float) -> None:
        me = transport.node
        target = self.live.get(peer)
        if self.live.get(me) is not transport or (me, peer) in self._connections:
            return
        blocked = (me, peer) in self._blocked or (peer, me) in self._blocked
        if target is None or blocked or target.process.is_paused:
            self.redial(transport, peer, min(2 * pause_s, REDIAL_S_MAX))
            return
        connection = _Connection(transport, target)
        self._connections[me, peer] = connection
        self.loop.later_in(target.process, 2 * self.latency(), self._accept, connection)

    def _accept(self, connection: _Connection) -> None:
        if not connection.is_open:
            return
        sender, receiver = connection.sender, connection.receiver
        self.loop.later_in(sender.process, self.latency(), self._proven, connection)
        if (receiver.node, sender.node) not in self._connections:
            self._dial(receiver, sender.node, REDIAL_S_MIN)

    def _proven(self, connection: _Connection) -> None:
        if connection.is_open:
            sender, peer = connection.sender, connection.receiver.node
            sender.outgoing[peer] = connection
            sender.receiver.peer_connected(peer)
            self._replay(connection)

    def _replay(self, connection: _Connection) -> None:
        odds = 0.0 if self.is_calm else self.odds.replay_odds
        for frame in self._sent.get((connection.sender.node, connection.receiver.node), ()):
            if odds and self.rng.random() < odds:
                self.loop.later(self.rng.random(), self._schedule, connection, frame)

    # Frames.

    def send(self, connection: _Connection, frame: bytes) -> bool:
        """Take a frame from its sender."""
        sender, to = connection.sender.node, connection.receiver.node
        if self.odds.refusal_odds and not self.is_calm and self.rng.random() < self.odds.refusal_odds:
            return False
        self.on_frame(sender, to, frame)
        if self.odds.replay_odds and frame[0] in REPLAYABLE:
            self._sent.setdefault((sender, to), deque(maxlen=REMEMBERED_FRAMES)).append(frame)
        self._schedule(connection, frame)
        return True

    def _schedule(self, connection: _Connection, frame: bytes) -> None:
        if not connection.is_open:
            return
        connection.free_at = max(connection.free_at, self.loop.now + self.latency())
        receiver = connection.receiver
        self.loop.later_in(
            receiver.process, connection.free_at - self.loop.now, self._deliver, connection, frame
        )

    def _deliver(self, connection: _Connection, frame: bytes) -> None:
        if not connection.is_open:
            return
        sender, receiver = connection.sender.node, connection.receiver
        if (sender, receiver.node) in self._blocked:
            connection.held.append(frame)
            return
        self.on_arrival(sender, receiver.node, frame)
        receiver.heard_at[sender] = self.loop.time()
        receiver.receiver.frame_received(sender, memoryview(frame))


class SimulatedTransport:
    """One process's links; see ``raftlog.node.transport.Transport``."""

    def __init__(self, network: SimulatedNetwork, node: NodeId, process: Process) -> None:
        self.node = node
        self.process = process
        self.receiver: FrameReceiver
        self.outgoing: dict[NodeId, _Connection] = {}
        self.heard_at: dict[NodeId, float] = {}
        self._network = network
        self._peers: dict[NodeId, None] = {}
        self._is_started = False

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen and dial."""
        self.receiver = receiver
        self._is_started = True
        self._network.started(self)
        for peer in self._peers:
            self._network.redial(self, peer, 0.001)

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Addresses mean nothing here; who is known is dialled."""
        if peer not in self._peers:
            self._peers[peer] = None
            if self._is_started:
                self._network.redial(self, peer, 0.001)

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame, where a connection stands."""
        connection = self.outgoing.get(peer)
        if connection is None or not connection.is_open or not self.process.is_alive:
            return False
        return self._network.send(connection, b"".join(buffers))

    def queued_bytes(self, peer: NodeId) -> int:
        """Nothing queues here."""
        return 0

    def seconds_since_heard(self, peer: NodeId) -> float:
        """How long nothing has come."""
        heard_at = self.heard_at.get(peer)
        return math.inf if heard_at is None else self._network.loop.time() - heard_at

    def disconnect(self, peer: NodeId) -> None:
        """Break both directions."""
        self._network.break_connection((self.node, peer))
        self._network.break_connection((peer, self.node))

    def lost(self, peer: NodeId) -> None:
        """Our own connection to a peer broke."""
        connection = self.outgoing.get(peer)
        if connection is not None and not connection.is_open:
            del self.outgoing[peer]
        self.receiver.peer_lost(peer)

    def told_lost(self, peer: NodeId) -> None:
        """The connection from a peer broke."""
        if self._is_started:
            self.receiver.peer_lost(peer)

    async def stop(self) -> None:
        """Close everything."""
        if self._is_started:
            self._is_started = False
            self._network.process_ended(self, silently=False)
