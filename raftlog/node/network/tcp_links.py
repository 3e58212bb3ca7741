"""The connections of a node: one outbound to each peer, redialled forever, and one inbound from each peer.

Each end of a proven connection is reported to the layer above exactly once. The end of a connection that was
never proven is counted as a refusal and not reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from raftlog.clock import Clock
from raftlog.node.frame_limits import FRAME_LIMITS
from raftlog.node.network.framing import HEADER_BYTES
from raftlog.node.network.handshake import (
    DISK_REFUSED,
    NODE_ID_IN_USE,
    NONCE_BYTES,
    REMOVED_NODE,
    Credentials,
    DiallerHandshake,
    ListenerHandshake,
    is_second_process,
)
from raftlog.node.network.host_addresses import HostAddresses
from raftlog.node.network.rejected_connections import DialFailures, LogEvent, Refusals
from raftlog.node.network.tcp_connection import Connection, InboundConnection, OutboundConnection
from raftlog.node.network.transport import FrameReceiver
from raftlog.types import NodeId

_MEBIBYTE = 1024 * 1024
SMALL_FRAME_BYTES: Final = 16 << 10
SMALL_FRAMES_BYTES_MAX: Final = _MEBIBYTE


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """The limits of a transport. All nodes of a cluster should have the same ``frame_bytes_max``."""

    frame_bytes_max: int = FRAME_LIMITS.frame_bytes_max
    queue_bytes_max: int = 64 * _MEBIBYTE
    """Bytes that may be queued for each peer, with headers.

    Small frames may use ``SMALL_FRAMES_BYTES_MAX`` more.
    """
    handshake_ms_max: int = 5_000
    """The time in milliseconds that a listener gives the other node for the handshake."""
    dial_ms_max: int = 750
    """The time in milliseconds for a connection that this node dials, and again for its handshake.

    Bytes that a broken network has lost never arrive: an attempt during an outage must end soon after the
    outage.
    """
    redial_ms_min: int = 50
    redial_ms_max: int = 500
    unacknowledged_ms_max: int = 1_500
    """The time in milliseconds without an acknowledgement after which the kernel closes a connection."""
    unproven_connections_max: int = 64
    """The maximum number of unproven connections; above it, the oldest unproven connection is closed."""
    log_interval_ms: int = 5_000
    """Refusals for one reason are logged once per interval, with the number of refusals not logged."""

    def __post_init__(self) -> None:
        if self.queue_bytes_max < self.frame_bytes_max + HEADER_BYTES:
            raise ValueError(
                f"queue_bytes_max is {self.queue_bytes_max}: give at least frame_bytes_max "
                f"plus a header, {self.frame_bytes_max + HEADER_BYTES}"
            )
        if not 0 < self.redial_ms_min <= self.redial_ms_max:
            raise ValueError("redial_ms_min: give a number above 0 and not above redial_ms_max")


@dataclass(frozen=True, slots=True)
class LinkContext:
    """Settings and counters that all connections of one node share."""

    credentials: Credentials
    limits: TransportLimits
    clock: Clock
    rng: Random
    refusals: Refusals
    log: LogEvent
    receiver: FrameReceiver
    removed: Set[NodeId]  # nodes whose connections are refused


class OutboundLink:
    """The outbound connection to one peer: dials, waits until the connection breaks, dials again."""

    def __init__(self, context: LinkContext, peer: NodeId, host: str, port: int) -> None:
        self._context = context
        self._peer = peer
        self.address = (host, port)
        self._addresses = self._addresses_of(host, port)
        self._redial_ms = context.limits.redial_ms_min
        self._dial_now = asyncio.Event()
        self._is_stopped = False
        self._is_connected = False  # whether the loop has handed ``connection`` over
        self.process = b""  # the process that was reached last
        self._failures = DialFailures(context.log, context.clock, peer)
        self.connection = self._new_connection()
        self._task = asyncio.get_running_loop().create_task(self._dial_for_ever())

    def move(self, host: str, port: int) -> None:
        """Use another address for the peer, if ``host`` or ``port`` differs from the present address."""
        if (host, port) != self.address:
            self.address = (host, port)
            self._addresses = self._addresses_of(host, port)
            self.connection.abort()
            self.dial_now()

    def dial_now(self) -> None:
        """Dial the peer at once, without the rest of the pause: the peer seems to be running."""
        if not self.connection.is_open:
            self._redial_ms = self._context.limits.redial_ms_min
            self._dial_now.set()

    def disconnect(self) -> None:
        """Break the connection; an attempt to connect that is in progress may continue."""
        if self.connection.is_open:
            self.connection.abort()

    def retire(self) -> None:
        """Stop dialling, and break the connection; its end is reported. ``stop`` may follow."""
        self._task.cancel()
        self.connection.abort()

    async def stop(self) -> None:
        """Stop dialling and close the connection; its end is not reported."""
        self._is_stopped = True
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._addresses.close()
        self.connection.abort()
        if self._is_connected:
            await self.connection.closed

    def connection_proven(self, connection: Connection) -> None:
        """Report that frames to the peer can now be sent."""
        self.process = connection.process
        self._redial_ms = self._context.limits.redial_ms_min
        self._context.receiver.peer_connected(self._peer)

    def connection_refused(self, connection: Connection, reason: str, detail: str = "") -> None:
        """Count the refusal: the other end is not the expected peer, or it refuses this node."""
        self._context.refusals.add(
            reason,
            direction="outbound",
            remote_address=connection.remote_address,
            claimed_node=connection.claimed_node,
            detail=detail,
        )
        if reason == REMOVED_NODE:
            self._context.receiver.peer_refused(self._peer)

    def connection_closed(self, connection: Connection) -> None:
        """Report a lost peer, and only then let the dialling task continue."""
        if connection.is_proven and not self._is_stopped:
            self._context.receiver.peer_lost(self._peer)

    def _new_connection(self) -> OutboundConnection:
        nonce = secrets.token_bytes(NONCE_BYTES)
        handshake = DiallerHandshake(self._context.credentials, self._peer, nonce)
        limits = self._context.limits
        return OutboundConnection(handshake, self, limits.dial_ms_max, limits.unacknowledged_ms_max)

    async def _dial_for_ever(self) -> None:
        limits = self._context.limits
        while True:
            with contextlib.suppress(MemoryError):  # even noting the failure may need memory
                await self._dial()
            pause_ms = self._redial_ms * (1 + self._context.rng.random() / 2)
            self._redial_ms = min(2 * self._redial_ms, limits.redial_ms_max)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1000):
                    await self._dial_now.wait()

    def _addresses_of(self, host: str, port: int) -> HostAddresses:
        return HostAddresses(host, port, self._context.limits.dial_ms_max / 1000)

    async def _dial(self) -> None:
        """Connect to the peer; return when the connection has ended or could not be made, for any reason."""
        self._is_connected = False
        connection = self.connection = self._new_connection()
        self._dial_now.clear()
        addresses = self._addresses
        try:
            found = await addresses.of_attempt()
            # A cancelled call closes its connection, and uvloop then does not notify the protocol:
            # only a connection that was handed over has an end to wait for.
            async with asyncio.timeout(self._context.limits.dial_ms_max / 1000):
                await self._connect(connection, addresses.port, *found)
            self._is_connected = True
            self._failures.ended()
            await asyncio.shield(connection.closed)
        except TimeoutError:
            self._undialled(connection, "no answer in time")
        except Exception as error:  # no listener, or the name does not resolve, or memory is short
            self._undialled(connection, str(error) or type(error).__name__)
        if not connection.is_proven:
            addresses.failed()

    async def _connect(self, connection: OutboundConnection, port: int, host: str, *others: str) -> None:
        """Connect to the first of these hosts that accepts the connection."""
        connect = asyncio.get_running_loop().create_connection
        try:
            await connect(partial(_same, connection), host, port)
        except OSError:
            if not others:
                raise
            await self._connect(connection, port, *others)

    def _undialled(self, connection: Connection, reason: str) -> None:
        connection.abort()
        self._failures.add(*self.address, reason)


class InboundConnections:
    """The inbound connections; of several connections from one peer, the newest proven one counts.

    An exception: a second process with the id of a peer is refused while the first process is connected and
    can be reached. ``link_to`` returns this node's own link to a peer, which knows the process that it has
    reached last. ``on_peer_ended`` is called when the connection of a peer has ended or a newer connection
    has replaced it.
    """

    def __init__(
        self,
        context: LinkContext,
        link_to: Callable[[NodeId], OutboundLink | None],
        on_peer_proven: Callable[[NodeId], None],
        on_peer_ended: Callable[[NodeId], None],
    ) -> None:
        self._context = context
        self._link_to = link_to
        self._on_peer_proven = on_peer_proven
        self._on_peer_ended = on_peer_ended
        self._all: set[InboundConnection] = set()
        self._unproven: dict[InboundConnection, None] = {}  # in the order of their arrival
        self._by_peer: dict[NodeId, InboundConnection] = {}
        self._heard_at: dict[NodeId, float] = {}
        self._unreached: dict[NodeId, tuple[bytes, str]] = {}  # processes whose frames are dropped; why

    def accept(self) -> InboundConnection:
        """Create the protocol object for a connection that was just accepted."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        handshake = ListenerHandshake(
            self._context.credentials, nonce, lambda *dialler: self._refusal_of(connection, *dialler)
        )
        limits = self._context.limits
        connection = InboundConnection(handshake, self, limits.handshake_ms_max, limits.unacknowledged_ms_max)
        if len(self._unproven) >= limits.unproven_connections_max:
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]
            oldest.refuse("too_many_unproven_connections")
        self._all.add(connection)
        self._unproven[connection] = None
        return connection

    def seconds_since_heard(self, peer: NodeId) -> float:
        """The seconds since the last bytes from this peer; infinite if none have arrived."""
        heard_at = self._heard_at.get(peer)
        return math.inf if heard_at is None else self._context.clock.monotonic() - heard_at

    def process_of(self, peer: NodeId) -> bytes:
        """The random bytes of the process that is connected as this peer; empty without a connection."""
        return self._by_peer[peer].process if peer in self._by_peer else b""

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Refuse the process that is connected as this peer when it dials again, unless this node
        reaches it.
        """
        self._unreached[peer] = self.process_of(peer), why

    def disconnect(self, peer: NodeId) -> None:
        """Break the connection from this peer, if there is one."""
        if peer in self._by_peer:
            self._by_peer[peer].abort()

    async def stop(self) -> None:
        """Close all connections without a report to the layer above."""
        self._by_peer.clear()
        connections = list(self._all)
        for connection in connections:
            connection.abort()
        # A connection that was accepted while the listener closed may never be made: it has no end to wait
        # for.
        await asyncio.gather(*(connection.closed for connection in connections if connection.is_made))

    def connection_proven(self, connection: Connection) -> None:
        """Make this the connection of its peer, and close an older connection of that peer."""
        assert isinstance(connection, InboundConnection)
        peer = connection.peer
        self._unproven.pop(connection, None)
        deliver = partial(self._context.receiver.frame_received, peer)
        connection.receive_frames(deliver, partial(self._heard, peer), self._context.limits.frame_bytes_max)
        self._heard(peer)
        older = self._by_peer.get(peer)
        self._by_peer[peer] = connection
        if older is not None:
            older.abort()
            self._ended(peer)
        self._on_peer_proven(peer)

    def connection_refused(self, connection: Connection, reason: str, detail: str = "") -> None:
        """Count the refusal: the other end is no node of this cluster, or has sent a damaged frame."""
        self._context.refusals.add(
            reason,
            direction="inbound",
            remote_address=connection.remote_address,
            claimed_node=connection.claimed_node or connection.peer,
            detail=detail,
        )

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection that has ended; report a lost peer if frames may have been lost."""
        assert isinstance(connection, InboundConnection)
        self._all.discard(connection)
        self._unproven.pop(connection, None)
        if connection.is_proven and self._by_peer.get(connection.peer) is connection:
            del self._by_peer[connection.peer]
            self._ended(connection.peer)

    def _refusal_of(self, connection: Connection, peer: NodeId, process: bytes) -> tuple[str, str] | None:
        if peer in self._context.removed:
            return REMOVED_NODE, f"node {peer} was removed from the cluster"
        link, comes_from = self._link_to(peer), f"this process connects from {connection.remote_address}"
        if link is None or link.process == process:
            return None
        host, port = link.address
        if is_second_process(process, self.process_of(peer), link.process):
            return NODE_ID_IN_USE, (
                f"another process runs as node {peer}, at {host}:{port}; {comes_from}: "
                "stop one, or change its broker_id"
            )
        unreached, why = self._unreached.get(peer, (b"", ""))
        if unreached == process:
            node = self._context.credentials.node_id
            return DISK_REFUSED, f"{why}, and node {node} dials another address, {host}:{port}; {comes_from}"
        return None

    def _ended(self, peer: NodeId) -> None:
        self._context.receiver.peer_lost(peer)
        self._on_peer_ended(peer)

    def _heard(self, peer: NodeId) -> None:
        self._heard_at[peer] = self._context.clock.monotonic()


def _same(connection: OutboundConnection) -> OutboundConnection:
    return connection
