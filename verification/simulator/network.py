"""Simulates a network that keeps the contract of ``Transport`` and promises nothing beyond it.

Each direction of each pair of brokers has its own connection, as over TCP. Frames arrive late and in order
while the connection is open; frames in flight are lost when it breaks. A blocked direction either breaks its
connection or delays the frames until it opens again, as retransmission does. A silent connection looks open
to both ends and delivers nothing more, not even its end: only a new connection works. A slow direction delays
its frames more and more: they arrive late, but without long gaps between them. For a while a broker may get
all messages except entries of the metadata group; then it acts on old metadata. Raft messages may be
delivered repeatedly: with the probability ``replay_odds`` an old message arrives again after a reconnect.

As over TCP, each end has its own view of a connection: one end may have closed a connection that is open for
the other end. The other end learns this only once a packet from the first end arrives.

A process is dialled at an address. When a copy of a broker's disk runs, it is a second process with the
broker's id, but with its own address, place and links.

Decides: when a frame arrives. Leaves to others: when directions are blocked (``faults``), and which of two
processes with one id is refused (``raftlog.node.network.handshake``).
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from raftlog.node.codec import FrameKind
from raftlog.node.frame_limits import FRAME_LIMITS
from raftlog.node.network.handshake import is_second_process
from raftlog.node.network.transport import FrameReceiver
from raftlog.storage.filesystem import Buffer
from raftlog.types import METADATA_GROUP, NodeId
from verification.simulator.event_loop import Process, SimulatedLoop

REDIAL_S_MIN, REDIAL_S_MAX = 0.05, 0.5
DIAL_S_MAX = 0.75
REMEMBERED_FRAMES = 60
NEAR = 0.75  # of the limit of a frame
APPEND_TAG = 3  # of the codec
REPLAYABLE = (FrameKind.RAFT, FrameKind.HEARTBEATS, FrameKind.HEARTBEAT_REPLIES)

Address = tuple[str, int]
Direction = tuple[NodeId, NodeId]
"""Places of the sending and the receiving process. A place is the broker's id, or the negative id for a copy.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOdds:
    """The random parameters of the network in one run."""

    latency_s: float
    jitter_s: float
    refusal_odds: float  # of a frame, as by a full queue
    replay_odds: float  # of each remembered frame, at a reconnect


@dataclass(eq=False, slots=True)
class _Connection:
    sender: SimulatedTransport
    receiver: SimulatedTransport
    is_silent: bool = False
    is_accepted: bool = False  # the receiver knows who dials it
    is_proven: bool = False  # and the sender who answers
    free_at: float = 0.0
    held: list[bytes] = field(default_factory=list)
    ended: list[SimulatedTransport] = field(default_factory=list)  # the ends that know that it is closed

    @property
    def is_open(self) -> bool:
        """True if the connection is open for both ends."""
        return not self.ended

    @property
    def direction(self) -> Direction:
        return self.sender.place, self.receiver.node

    def other(self, end: SimulatedTransport) -> SimulatedTransport:
        return self.receiver if end is self.sender else self.sender


class SimulatedNetwork:
    """All links of a run. ``on_frame`` gets every frame when it is sent, ``on_arrival`` when it is received.

    ``on_too_large`` gets every frame above the size limit.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        odds: NetworkOdds,
        frame_bytes_max: int = FRAME_LIMITS.frame_bytes_max,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.odds = odds
        self.breaks = 0
        self.near = 0  # frames near the limit
        self.frame_bytes_max = frame_bytes_max
        self.near_bytes = int(NEAR * frame_bytes_max)
        self.is_calm = False
        self.on_frame: Callable[[NodeId, NodeId, bytes], None] = lambda sender, to, frame: None
        self.on_arrival: Callable[[bytes], None] = lambda frame: None
        self.on_too_large: Callable[[bytes], None] = lambda frame: None
        self.live: dict[Address, SimulatedTransport] = {}
        self._blocked: dict[Direction, bool] = {}  # whether frames are held
        self._cut: dict[Direction, bool] = {}  # those of them that ``heal`` leaves blocked
        self._slow: dict[Direction, tuple[float, float]] = {}  # since when, and up to what delay
        self._without_metadata: set[NodeId] = set()
        self._half_closed: list[_Connection] = []  # one end has closed it, and could not notify the other
        self._sent: dict[Direction, deque[bytes]] = {}
        self._connections: dict[Direction, _Connection] = {}

    def transport(
        self, node: NodeId, process: Process, address: Address, place: NodeId
    ) -> SimulatedTransport:
        """Create the network's end for one process."""
        return SimulatedTransport(self, node, process, address, place)

    def latency(self) -> float:
        """Draw the latency of one frame, in seconds."""
        return self.odds.latency_s + self.odds.jitter_s * self.rng.random() ** 4

    def is_blocked(self, sender: NodeId, to: NodeId) -> bool:
        """True if frames from one broker to the other are blocked."""
        return (sender, to) in self._blocked

    def block(self, directions: Sequence[Direction], *, holds: bool) -> None:
        """Block directions: with ``holds`` their frames are delayed, otherwise their connections break."""
        for direction in directions:
            self._blocked[direction] = holds
            if not holds:
                self.break_connection(direction)

    def cut(self, directions: Sequence[Direction], *, holds: bool) -> None:
        """Block directions until ``mend``, even if other links are healed before."""
        self._cut |= dict.fromkeys(directions, holds)
        self.block(directions, holds=holds)

    def mend(self) -> None:
        """Unblock all directions, including directions that ``cut`` has blocked."""
        self._cut = {}
        self.heal()

    def heal(self) -> None:
        """Unblock all directions except directions that ``cut`` has blocked; delayed frames arrive now."""
        healed = {direction: None for direction in self._blocked if direction not in self._cut}
        self._blocked = dict(self._cut)
        self._slow = {}
        self._without_metadata.clear()
        half_closed, self._half_closed = self._half_closed, []
        for closed in half_closed:
            self._tell_other_end(closed)
        for direction in healed:
            connection = self._connections.get(direction)
            if connection is not None and connection.held:
                self.loop.later_in(connection.receiver.process, 0.0, self._release, connection)

    def silence(self, direction: Direction) -> None:
        """Silence the open connection of a direction: it delivers no more frames, and neither end notices."""
        connection = self._connections.get(direction)
        if connection is not None:
            connection.is_silent = True

    def slow(self, direction: Direction, delay_s: float) -> None:
        """Delay the frames of a direction longer and longer, up to a maximum, until ``heal``."""
        self._slow.setdefault(direction, (self.loop.now, delay_s))

    def withhold_metadata(self, node: NodeId) -> None:
        """Drop every entry of the metadata group that is sent to a broker, until ``heal``."""
        self._without_metadata.add(node)

    def break_connection(self, direction: Direction) -> None:
        """Break the connection of a direction: frames in flight are lost, both ends are notified, and it is
        dialled again.
        """
        connection = self._connections.get(direction)
        if connection is not None:
            self.end(connection, connection.sender)
            self.end(connection, connection.receiver)

    def disconnect(self, transport: SimulatedTransport, peer: NodeId) -> None:
        """Close the connections to and from a peer at the end of this process."""
        for connection in (transport.outgoing.get(peer), transport.incoming.get(peer)):
            if connection is not None:
                self.end(connection, transport)

    def move(self, transport: SimulatedTransport, peer: NodeId) -> None:
        """Let a process dial a peer at another address from now on."""
        connection = self._connections.get((transport.place, peer))
        if connection is not None:
            self.end(connection, transport)

    def end(
        self, connection: _Connection, end: SimulatedTransport, told_after_s: float | None = None
    ) -> None:
        """Close a connection at one end. The other end learns that the connection is closed if a packet can
        reach it.

        With ``told_after_s``, the closing end is notified after this time.
        """
        if end in connection.ended:
            return
        connection.ended.append(end)
        delay_s = self.latency() if told_after_s is None else told_after_s
        self.loop.later_in(end.process, delay_s, end.lost, connection)
        if end is connection.sender:
            if self._connections.get(connection.direction) is connection:
                del self._connections[connection.direction]
            self.redial(end, connection.receiver.node, REDIAL_S_MIN)
        if len(connection.ended) == 1:
            self.breaks += 1
            connection.held.clear()
            self._tell_other_end(connection)

    def _tell_other_end(self, connection: _Connection) -> None:
        end, other = connection.ended[0], connection.other(connection.ended[0])
        if (end.place, other.place) in self._blocked:
            self._half_closed.append(connection)
        elif not connection.is_silent:
            self.loop.later_in(other.process, self.latency(), self.end, connection, other, 0.0)

    def process_ended(self, transport: SimulatedTransport, *, silently: bool) -> None:
        """Handle a process that has ended.

        With ``silently``, as after a power loss, the other ends are not notified; otherwise connections are
        reset.
        """
        if self.live.get(transport.address) is transport:
            del self.live[transport.address]
        for connection in list(self._connections.values()):
            if transport in (connection.sender, connection.receiver):
                if silently:
                    connection.held.clear()
                else:
                    self.end(connection, transport)

    def started(self, transport: SimulatedTransport) -> None:
        """Handle a process that begins to listen. Connections of the former process at its place are closed
        at the latest now.
        """
        for connection in list(self._connections.values()):
            for end in (connection.sender, connection.receiver):
                if end.place == transport.place and end is not transport:
                    self.end(connection, end)
        self.live[transport.address] = transport

    # Dialling.

    def redial(self, transport: SimulatedTransport, peer: NodeId, pause_s: float) -> None:
        """Dial a peer after a pause; repeat until it is connected."""
        pause_s *= 1 + self.rng.random() / 2
        self.loop.later_in(transport.process, pause_s, self._dial, transport, peer, pause_s)

    def _dial(self, transport: SimulatedTransport, peer: NodeId, pause_s: float) -> None:
        me = transport.place
        if self.live.get(transport.address) is not transport or (me, peer) in self._connections:
            return
        if peer not in transport.peers:
            return  # it was removed since
        target = self.live.get(transport.peers[peer])
        blocked = (me, peer) in self._blocked or (peer, me) in self._blocked
        if target is None or target.node != peer or blocked or target.process.is_paused:
            self.redial(transport, peer, min(2 * pause_s, REDIAL_S_MAX))
            return
        connection = _Connection(transport, target)
        self._connections[me, peer] = connection
        self.loop.later_in(transport.process, DIAL_S_MAX, self._give_up, connection)
        self.loop.later_in(target.process, 2 * self.latency(), self._accept, connection)

    def _give_up(self, connection: _Connection) -> None:
        if not connection.is_proven:
            self.end(connection, connection.sender)

    def _accept(self, connection: _Connection) -> None:
        if not connection.is_open or connection.is_silent:
            return
        sender, receiver = connection.sender, connection.receiver
        if sender.node in receiver.removed:
            self._refuse(connection)
            return
        older = receiver.incoming.get(sender.node)
        if is_second_process(
            sender.name, receiver.dialler(sender.node), receiver.reached.get(sender.node, b"")
        ):
            self.end(connection, receiver, 0.0)
            return
        connection.is_accepted = True
        receiver.incoming[sender.node] = connection
        if older is not None:
            self.end(older, receiver, 0.0)
        self.loop.later_in(sender.process, self.latency(), self._proven, connection)
        if sender.node in receiver.peers and (receiver.place, sender.node) not in self._connections:
            self._dial(receiver, sender.node, REDIAL_S_MIN)

    def _refuse(self, connection: _Connection) -> None:
        """Let the listener tell the dialling process that its broker was removed; close the connection."""
        sender, receiver = connection.sender, connection.receiver
        if (receiver.place, sender.place) not in self._blocked:
            self.loop.later_in(sender.process, self.latency(), sender.receiver.peer_refused, receiver.node)
        self.end(connection, receiver, 0.0)

    def _proven(self, connection: _Connection) -> None:
        if connection.is_open and not connection.is_silent:
            connection.is_proven = True
            sender, peer = connection.sender, connection.receiver.node
            sender.outgoing[peer] = connection
            sender.reached[peer] = connection.receiver.name
            sender.receiver.peer_connected(peer)
            self._replay(connection)

    def _replay(self, connection: _Connection) -> None:
        odds = 0.0 if self.is_calm else self.odds.replay_odds
        for frame in self._sent.get(connection.direction, ()):
            if odds and self.rng.random() < odds:
                self.loop.later(self.rng.random(), self._schedule, connection, frame)

    # Frames.

    def check_size(self, frame: bytes) -> None:
        """Raise ``ValueError`` for a frame above the size limit, as the real transport does."""
        if len(frame) > self.frame_bytes_max:
            self.on_too_large(frame)
            raise ValueError(f"frame has {len(frame)} bytes: send at most {self.frame_bytes_max}")
        self.near += 1

    def send(self, connection: _Connection, frame: bytes) -> bool:
        (sender, to), odds = connection.direction, self.odds
        if odds.refusal_odds and not self.is_calm and self.rng.random() < odds.refusal_odds:
            return False
        if to in self._without_metadata and _brings_metadata(frame):
            return False
        self.on_frame(sender, to, frame)
        if odds.replay_odds and frame[0] in REPLAYABLE:
            kept = self._sent.get((sender, to))
            if kept is None:
                kept = self._sent[sender, to] = deque(maxlen=REMEMBERED_FRAMES)
            kept.append(frame)
        self._schedule(connection, frame)
        return True

    def _schedule(self, connection: _Connection, frame: bytes) -> None:
        if connection.ended:
            return
        receiver, now = connection.receiver, self.loop.now
        due = now + self.latency()
        if self._slow:
            since, delay_s = self._slow.get(connection.direction, (now, 0.0))
            due += min(delay_s, now - since)
        if due > connection.free_at:
            connection.free_at = due
        self.loop.at_in(receiver.process, connection.free_at, self._deliver, connection, frame)

    def _release(self, connection: _Connection) -> None:
        held, connection.held = connection.held, []
        for frame in held:
            self._deliver(connection, frame)

    def _deliver(self, connection: _Connection, frame: bytes) -> None:
        if connection.ended or connection.is_silent:
            return
        sender, receiver = connection.sender.node, connection.receiver
        # Behind a delayed frame others wait, too: a receiver that was paused may get to them first.
        if connection.held or (self._blocked and connection.direction in self._blocked):
            connection.held.append(frame)
            return
        self.on_arrival(frame)
        receiver.heard_at[sender] = self.loop.time()
        receiver.receiver.frame_received(sender, memoryview(frame))


def _brings_metadata(frame: bytes) -> bool:
    """Return whether a frame has entries of the metadata group: its group and tag are single bytes after the
    prefix.
    """
    return frame[0] == FrameKind.RAFT and frame[6:8] == bytes((METADATA_GROUP, APPEND_TAG))


class SimulatedTransport:
    """The links of one process; see ``raftlog.node.network.transport.Transport``."""

    def __init__(
        self, network: SimulatedNetwork, node: NodeId, process: Process, address: Address, place: NodeId
    ) -> None:
        self.node = node
        self.process = process
        self.address = address
        self.place = place
        self.name = process.name.encode()  # of the process
        self.reached: dict[NodeId, bytes] = {}  # the process at the end of the last proven connection to each
        self.receiver: FrameReceiver
        self.outgoing: dict[NodeId, _Connection] = {}  # proven; see ``_Connection.ended``
        self.incoming: dict[NodeId, _Connection] = {}
        self.heard_at: dict[NodeId, float] = {}
        self._network = network
        self.peers: dict[NodeId, Address] = {}
        self.removed: set[NodeId] = set()
        self._is_started = False

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen, and dial all peers."""
        self.receiver = receiver
        self._is_started = True
        self._network.started(self)
        for peer in self.peers:
            self._network.redial(self, peer, 0.001)

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Set or change a peer's address. A connection to its former address is closed."""
        if peer in self.removed or self.peers.get(peer) == (host, port):
            return
        is_new = peer not in self.peers
        self.peers[peer] = host, port
        if is_new and self._is_started:
            self._network.redial(self, peer, 0.001)
        elif not is_new:
            self._network.move(self, peer)

    def refuse_peer(self, peer: NodeId) -> None:
        """Disconnect a peer, stop dialling it, and refuse its connections."""
        self.removed.add(peer)
        self.peers.pop(peer, None)
        self._network.disconnect(self, peer)

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Do nothing: this only affects the log lines about a process that was never heard, which are not
        simulated.
        """

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame for a peer; it is dropped if the peer is not connected."""
        connection = self.outgoing.get(peer)
        if connection is None or self in connection.ended or not self.process.is_alive:
            return False
        frame = b"".join(buffers)
        if len(frame) > self._network.near_bytes:
            self._network.check_size(frame)
        return self._network.send(connection, frame)

    def queued_bytes(self, peer: NodeId) -> int:
        return 0

    def seconds_since_heard(self, peer: NodeId) -> float:
        """Return the time since the last frame from the peer arrived, in seconds."""
        heard_at = self.heard_at.get(peer)
        return math.inf if heard_at is None else self._network.loop.time() - heard_at

    def reaches(self, peer: NodeId) -> bool:
        """Return whether the own connection to a peer is open and leads to the process that has dialled as
        this peer.
        """
        connection = self.outgoing.get(peer)
        is_open = connection is not None and self not in connection.ended
        return is_open and self.dialler(peer) == self.reached.get(peer)

    def dialler(self, peer: NodeId) -> bytes:
        """Return the name of the process that has dialled as the peer; empty if there is none."""
        connection = self.incoming.get(peer)
        return b"" if connection is None or self in connection.ended else connection.sender.name

    def disconnect(self, peer: NodeId) -> None:
        """Break the connections to and from the peer."""
        self._network.disconnect(self, peer)

    def lost(self, connection: _Connection) -> None:
        """Report a closed connection to the receiver. After an incoming connection, close the outgoing one,
        too.
        """
        is_incoming, peer = connection.receiver is self, connection.other(self).node
        if self._is_started and (connection.is_accepted if is_incoming else connection.is_proven):
            self.receiver.peer_lost(peer)
            own = self.outgoing.get(peer)
            if is_incoming and own is not None:
                self._network.end(own, self)
            elif own is not None and own is not connection and self not in own.ended:
                self.receiver.peer_connected(peer)  # a real link is dialled again after its end is reported

    async def stop(self) -> None:
        if self._is_started:
            self._is_started = False
            self._network.process_ended(self, silently=False)
