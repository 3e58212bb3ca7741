"""Heartbeats and their replies of all groups of one broker: one frame for each peer and loop turn.

Decides: which heartbeats and replies a frame has. Leaves to others: when frames are sent (``group_host``),
their bytes (``codec``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from raftlog.core.messages import Heartbeat, HeartbeatReply
from raftlog.node.cluster_time import ClockReading
from raftlog.node.codec import encode_heartbeat_replies, encode_heartbeats
from raftlog.node.network.transport import Transport
from raftlog.types import GroupId, NodeId


class Heartbeats:
    """The heartbeats and replies that wait for the end of the loop turn."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._heartbeats: dict[NodeId, list[tuple[GroupId, Heartbeat]]] = {}
        self._replies: dict[NodeId, list[tuple[GroupId, HeartbeatReply]]] = {}
        self.are_due = False  # whether any wait

    def add(self, group: GroupId, to: NodeId, heartbeat: Heartbeat) -> None:
        """Put a heartbeat into the next frame for this peer."""
        self._heartbeats.setdefault(to, []).append((group, heartbeat))
        self.are_due = True

    def add_reply(self, group: GroupId, to: NodeId, reply: HeartbeatReply) -> None:
        """Put a reply into the next frame of replies for this peer."""
        self._replies.setdefault(to, []).append((group, reply))
        self.are_due = True

    def greet(self, peers: Iterable[NodeId]) -> None:
        """Make sure that each of these peers gets a frame, even an empty one: it shows that this broker is
        alive.
        """
        for peer in peers:
            self._heartbeats.setdefault(peer, [])
            self.are_due = True

    def send(self, clock: Callable[[], ClockReading], *, declines_leadership: bool) -> None:
        """Send all waiting frames; the clock is read only if a frame with heartbeats is among them."""
        self.are_due = False
        if self._heartbeats:
            heartbeats, self._heartbeats = self._heartbeats, {}
            reading = clock()
            for peer, entries in heartbeats.items():
                self._transport.send(
                    peer, [encode_heartbeats(reading, entries, declines_leadership=declines_leadership)]
                )
        if self._replies:
            replies, self._replies = self._replies, {}
            for peer, answers in replies.items():
                self._transport.send(peer, [encode_heartbeat_replies(answers)])
