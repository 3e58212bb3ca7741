"""The transport between nodes over TCP: one connection for each direction of each pair.

This node's frames to a peer use the connection that this node dialled, and the peer's frames
the connection that the peer dialled. So two nodes that dial each other at the same moment never have to
agree on which connection stays. When the peer's connection ends or is replaced, this node ends its own, too,
and dials again: a half-open connection does not outlive its counterpart. Leaves to others: cutting frames
(``framing``), which nodes may connect (``handshake``), which connections are kept (``tcp_links``), and
whether a silent peer is dead (the layer above).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from random import Random

from raftlog.clock import Clock, SystemClock
from raftlog.node.network.handshake import Credentials
from raftlog.node.network.rejected_connections import LogEvent, Refusals, log_to_standard_logging
from raftlog.node.network.tcp_links import (
    SMALL_FRAME_BYTES,
    SMALL_FRAMES_BYTES_MAX,
    InboundConnections,
    LinkContext,
    OutboundLink,
    TransportLimits,
)
from raftlog.node.network.transport import FrameReceiver
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId


class TcpTransport:
    """One node's links to all its peers; ``raftlog.node.network.transport.Transport`` over TCP.

    ``rng`` spreads the times of redialling; no secret depends on it.
    """

    def __init__(
        self,
        node_id: NodeId,
        cluster_id: str,
        secret: bytes,
        listen_host: str,
        listen_port: int,
        *,
        rng: Random,
        clock: Clock | None = None,
        log: LogEvent = log_to_standard_logging,
        limits: TransportLimits | None = None,
    ) -> None:
        self._credentials = Credentials(node_id, cluster_id, secret)
        self._listen_address = (listen_host, listen_port)
        self._rng = rng
        self._clock = clock or SystemClock()
        self._limits = limits or TransportLimits()
        self._log = log
        self._refusals = Refusals(log, self._clock, self._limits.log_interval_ms)
        self._addresses: dict[NodeId, tuple[str, int]] = {}
        self._links: dict[NodeId, OutboundLink] = {}
        self._retired: list[OutboundLink] = []
        self._removed: set[NodeId] = set()
        self._context: LinkContext | None = None
        self._inbound: InboundConnections | None = None
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"TcpTransport(node_id={self._credentials.node_id}, peers={sorted(self._addresses)})"

    @property
    def port(self) -> int:
        """The port of the listener; if port 0 was requested, the port that the system chose in ``start``."""
        if self._server is None:
            raise RuntimeError("the transport does not listen yet: await start() first")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def refusals(self) -> Mapping[str, int]:
        """The number of refused connections by reason, for metrics."""
        return self._refusals.counts

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen, and keep dialling every peer until ``stop``. Raises ``OSError`` if it cannot listen."""
        if self._context is not None:
            raise RuntimeError("the transport was started before: create a new one")
        self._context = LinkContext(
            self._credentials,
            self._limits,
            self._clock,
            self._rng,
            self._refusals,
            self._log,
            receiver,
            self._removed,
        )
        self._inbound = InboundConnections(
            self._context, self._links.get, self._peer_proven, self._peer_ended
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._inbound.accept, *self._listen_address)
        for peer, (host, port) in self._addresses.items():
            self._links[peer] = OutboundLink(self._context, peer, host, port)

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Set or change a peer's address. A connection to its former address is closed."""
        if peer == self._credentials.node_id:
            raise ValueError(f"peer {peer} is this node itself: set only the other nodes")
        if peer in self._removed:
            return
        self._addresses[peer] = (host, port)
        if peer in self._links:
            self._links[peer].move(host, port)
        elif self._server is not None and self._context is not None:
            self._links[peer] = OutboundLink(self._context, peer, host, port)

    def refuse_peer(self, peer: NodeId) -> None:
        """Close the connections to and from a removed peer, stop dialling it, and refuse its dials."""
        self._removed.add(peer)
        self._addresses.pop(peer, None)
        link = self._links.pop(peer, None)
        if link is not None:
            link.retire()
            self._retired.append(link)
        if self._inbound is not None:
            self._inbound.disconnect(peer)

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Refuse the process that is connected as this peer when it dials again, unless this node
        reaches it.
        """
        if self._inbound is not None:
            self._inbound.refuse_unreached(peer, why)

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame with these buffers of single bytes; see ``Transport.send``.

        Raises ``ValueError`` for a frame above ``frame_bytes_max``: a retry could not help.
        """
        length = sum(map(len, buffers))
        if length > self._limits.frame_bytes_max:
            raise ValueError(f"frame has {length} bytes: send at most {self._limits.frame_bytes_max}")
        link, most = self._links.get(peer), self._limits.queue_bytes_max
        if length <= SMALL_FRAME_BYTES:  # heartbeats and answers need room even if records fill the queue
            most += SMALL_FRAMES_BYTES_MAX
        return link is not None and link.connection.send(buffers, length, most)

    def queued_bytes(self, peer: NodeId) -> int:
        """The number of bytes that are queued for this peer."""
        link = self._links.get(peer)
        return link.connection.queued_bytes if link is not None else 0

    def seconds_since_heard(self, peer: NodeId) -> float:
        """The seconds since the last bytes from this peer; infinite if none have arrived."""
        return math.inf if self._inbound is None else self._inbound.seconds_since_heard(peer)

    def reaches(self, peer: NodeId) -> bool:
        """Whether the connection to this peer and the connection from it lead to one process."""
        link, inbound = self._links.get(peer), self._inbound
        if link is None or inbound is None or not link.connection.is_open:
            return False
        return inbound.process_of(peer) == link.process

    def disconnect(self, peer: NodeId) -> None:
        """Break the connections to and from this peer; dialling continues."""
        if self._inbound is not None:
            self._inbound.disconnect(peer)
        if peer in self._links:
            self._links[peer].disconnect()

    async def stop(self) -> None:
        """Close all connections and the listener; queued frames are lost, and no event is reported."""
        server, self._server = self._server, None
        if server is None or self._inbound is None:
            return
        server.close()
        links = [*self._links.values(), *self._retired]
        self._links.clear()
        await asyncio.gather(self._inbound.stop(), *(link.stop() for link in links))
        await server.wait_closed()

    def _peer_proven(self, peer: NodeId) -> None:
        if peer in self._links:
            self._links[peer].dial_now()

    def _peer_ended(self, peer: NodeId) -> None:
        """Break this node's own connection to a peer whose connection ended.

        The fault that broke the peer's connection may have broken this one without a sign.
        """
        if peer in self._links:
            self._links[peer].disconnect()
