"""The transport port: authenticated, checksummed, bounded frames between nodes.

Frames are opaque to the transport; ``codec`` defines their content. A frame may be lost, when a connection
breaks or a bound is exceeded, and never arrives damaged or from an unknown node. Frames from one peer arrive
in the order of sending while a connection lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId


class FrameReceiver(Protocol):
    """Receives frames and connection events, all on the event loop's thread."""

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        """Handle one complete, checked frame; its memory now belongs to the receiver.

        Raises ``MalformedFrame`` for invalid content: the connection that brought the frame is closed.
        """

    def peer_connected(self, peer: NodeId) -> None:
        """Handle a new link: frames to this peer can now be sent. The peer may be a new process."""

    def peer_lost(self, peer: NodeId) -> None:
        """Handle a broken connection to or from this peer; frames may have been lost."""

    def peer_refused(self, peer: NodeId) -> None:
        """Handle the refusal of this node, which was removed from the cluster, by a proven peer.

        Dialling continues.
        """


class Transport(Protocol):
    """One node's links to all its peers.

    Each direction of a pair has its own connection. When the inbound connection of a peer ends, the outbound
    connection is ended, too, and both are made again: both are then known to work. A connection may fail
    without a sign, and is ended by ``disconnect`` at the latest.
    """

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen, and keep dialling every peer until ``stop``."""

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Set or change a peer's address."""

    def refuse_peer(self, peer: NodeId) -> None:
        """Close the connections to and from this peer, stop dialling it, and refuse its dials."""

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Refuse the process that is connected as this peer when it dials again.

        The caller drops the process's frames, and cannot send it a frame. If this node's own link still does
        not reach the process when it dials, ``why`` is sent for the log of the process. A transport may also
        accept the process.
        """

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame with these buffers; all frames of one loop turn are sent in one write.

        Returns False if the frame was dropped: no connection, or ``queue_bytes_max`` would be exceeded. The
        buffers must not change afterwards.
        """

    def queued_bytes(self, peer: NodeId) -> int:
        """The number of bytes that are queued for this peer, for backpressure and metrics."""

    def seconds_since_heard(self, peer: NodeId) -> float:
        """The seconds since the last bytes from this peer; ``math.inf`` if none have arrived.

        All bytes count, also bytes of an incomplete frame. A peer may have no data to send: the layer above
        sends keepalive frames and decides whether the peer is dead.
        """

    def reaches(self, peer: NodeId) -> bool:
        """Whether this node's own link leads to the process whose frames come from this peer."""

    def disconnect(self, peer: NodeId) -> None:
        """Break the connections to and from this peer; ``peer_lost`` reports it, and dialling continues."""

    async def stop(self) -> None:
        """Close all connections and the listener."""
