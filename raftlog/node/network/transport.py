"""The transport port: authenticated, checksummed, bounded frames between nodes.

Frames are opaque here; ``codec`` says what stands in them. What is sent may be lost, when a
connection breaks or a bound is passed, and never arrives damaged or from a stranger. Frames
from one peer arrive in the order they were sent while a connection lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId


class FrameReceiver(Protocol):
    """Receives frames and connection events; all calls come on the event loop's thread."""

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        """One whole, checked frame. The memory is the receiver's to keep.

        Raises ``MalformedFrame`` where it makes no sense: the connection that brought it is closed.
        """

    def peer_connected(self, peer: NodeId) -> None:
        """Frames to this peer now leave; it may be a new incarnation of it."""

    def peer_lost(self, peer: NodeId) -> None:
        """The connection to or from this peer broke; frames may have been lost."""

    def peer_refused(self, peer: NodeId) -> None:
        """A peer that has proven itself refuses this node, which was removed. Dialling continues."""


class Transport(Protocol):
    """One node's links to all its peers.

    Each direction of a pair has a connection of its own. When the one from a peer ends, the one to it is
    ended, too, and dialled again: both are then known to work. A connection may die without a sign, and is
    ended by ``disconnect`` at the latest.
    """

    async def start(self, receiver: FrameReceiver) -> None:
        """Listen, and keep dialling every peer until ``stop``."""

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Learn or change a peer's address."""

    def refuse_peer(self, peer: NodeId) -> None:
        """Close the connections to and from this peer, dial it no more, and tell it so when it dials."""

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Frames of the process that is connected as this peer are dropped, and nothing can be sent to it.

        When it dials again and this node's own link has still not led to it, ``why`` is for its log. A
        transport may let it in all the same.
        """

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Queue one frame made of these buffers; all frames of one loop turn leave in one write.

        False when it was dropped: no connection, or ``queue_bytes_max`` would be passed. The
        buffers must not change afterwards.
        """

    def queued_bytes(self, peer: NodeId) -> int:
        """Bytes queued for this peer, for backpressure and metrics."""

    def seconds_since_heard(self, peer: NodeId) -> float:
        """The seconds since the newest bytes from this peer; ``math.inf`` if none ever came.

        Any bytes count, also those of a frame that is not whole yet. A peer may be silent for good
        reason: the layer above sends keepalive frames and decides.
        """

    def reaches(self, peer: NodeId) -> bool:
        """Whether this node's own link leads to the process whose frames come from this peer."""

    def disconnect(self, peer: NodeId) -> None:
        """Break the connections to and from this peer, which ``peer_lost`` reports; dialling continues."""

    async def stop(self) -> None:
        """Close all connections and the listener."""
