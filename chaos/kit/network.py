"""A transport whose links can be cut without an error, as by a firewall that drops packets.

The connections stay open, but no frames pass. When a link is restored, its connections are closed first, so
that no later frame follows lost frames on one connection.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raftlog.node.network.transport import FrameReceiver, Transport
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId


class CuttableTransport:
    """The links of one broker to its peers; used on the event loop's thread only."""

    def __init__(self, links: Transport) -> None:
        self._links = links
        self._cut_at: dict[NodeId, float] = {}

    def cut(self, peers: frozenset[NodeId]) -> None:
        """Cut the links to exactly these peers; restore the links to all other peers."""
        restored = self._cut_at.keys() - peers
        now = time.monotonic()
        self._cut_at = {peer: self._cut_at.get(peer, now) for peer in peers}
        for peer in restored:
            self._links.disconnect(peer)

    def is_cut(self, peer: NodeId) -> bool:
        """Return whether the link to a peer is cut."""
        return peer in self._cut_at

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen, and keep connecting to every peer until ``stop``."""
        await self._links.start(_Behind(receiver, self))

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Add a peer, or change its address."""
        self._links.set_peer(peer, host, port)

    def refuse_peer(self, peer: NodeId) -> None:
        """Drop all further frames to and from a removed peer."""
        self._links.refuse_peer(peer)

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Report to a peer why its frames are dropped, if it connects again."""
        self._links.refuse_unreached(peer, why)

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame; on a cut link the frame is lost, and the sender gets no error."""
        return True if peer in self._cut_at else self._links.send(peer, buffers)

    def queued_bytes(self, peer: NodeId) -> int:
        """The number of bytes that are queued for this peer."""
        return self._links.queued_bytes(peer)

    def seconds_since_heard(self, peer: NodeId) -> float:
        """Return the seconds since bytes came from this peer, or since the link was cut if that is longer."""
        heard_s = self._links.seconds_since_heard(peer)
        return max(heard_s, time.monotonic() - self._cut_at[peer]) if peer in self._cut_at else heard_s

    def reaches(self, peer: NodeId) -> bool:
        """Whether the underlying transport reaches this peer."""
        return self._links.reaches(peer)

    def disconnect(self, peer: NodeId) -> None:
        """Close the connections to and from this peer."""
        self._links.disconnect(peer)

    async def stop(self) -> None:
        """Close all connections and the listener."""
        await self._links.stop()


class _Behind:
    """A receiver that passes frames on, except frames from cut links."""

    def __init__(self, receiver: FrameReceiver, transport: CuttableTransport) -> None:
        self._receiver = receiver
        self._transport = transport

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        if not self._transport.is_cut(sender):
            self._receiver.frame_received(sender, frame)

    def peer_connected(self, peer: NodeId) -> None:
        if not self._transport.is_cut(peer):
            self._receiver.peer_connected(peer)

    def peer_lost(self, peer: NodeId) -> None:
        self._receiver.peer_lost(peer)

    def peer_refused(self, peer: NodeId) -> None:
        if not self._transport.is_cut(peer):
            self._receiver.peer_refused(peer)
