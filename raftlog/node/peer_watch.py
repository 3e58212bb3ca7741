"""Reachable peers, and peers that have become silent on a connected link.

Decides: when a peer counts as reachable and as silent. Leaves to others: the consequences (``group_host``).
Time is counted in this process's own ticks: if the process was held up, no tick passed, and no peer counts as
silent for that time.

A peer on a busy machine sends its frames late. If it counted as lost, its groups would hold elections, which
make all brokers busier, and more frames late. So a peer counts as silent only after a multiple of the longest
gap between its recent frames: an accrual failure detector (Hayashibara et al., 2004) without its statistics.
The silence for which a peer's link was ended is such a gap, too: a peer that suddenly became slow keeps its
next link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from raftlog.types import NodeId

PACE_TICKS: Final = 200  # a gap between frames counts for one to two times this number of ticks
SILENCE_GAPS: Final = 3  # a silence is longer than this multiple of the longest gap
SILENCE_MAX: Final = 6  # in shortest election timeouts: a longer time is always a silence


class PeerWatch:
    """The peers of one broker.

    ``seconds_since_heard`` is the method of the transport, which counts all bytes.
    """

    def __init__(
        self, silence_ticks: int, tick_ms: int, seconds_since_heard: Callable[[NodeId], float]
    ) -> None:
        self._silence_ticks = silence_ticks
        self._tick_s = tick_ms / 1000
        self._seconds_since_heard = seconds_since_heard
        self._met: set[NodeId] = set()
        self._heard: dict[NodeId, int] = {}  # reachable peers, and the tick of their last frame
        self._connected: dict[NodeId, int] = {}  # peers with an open link, and the tick of its begin
        self._declining: set[NodeId] = set()  # peers that want no leadership
        # The longest gap between two frames of each peer, in the present and the previous ``PACE_TICKS``.
        self._gaps: dict[NodeId, int] = {}
        self._gaps_before: dict[NodeId, int] = {}
        self.ticks = 0

    def tick(self) -> None:
        """Count one unit of time."""
        self.ticks += 1
        if self.ticks % PACE_TICKS == 0:
            self._gaps, self._gaps_before = {}, self._gaps

    @property
    def known(self) -> list[NodeId]:
        """Peers that must get heartbeats of this broker: members of its groups, and peers with a connected
        link.
        """
        return sorted(self._met | self._connected.keys())

    @property
    def successors(self) -> list[NodeId]:
        """Peers that may become leaders: reachable peers that do not decline leadership."""
        return [peer for peer in self._heard if peer not in self._declining]

    @property
    def reachable(self) -> frozenset[NodeId]:
        """Peers that have answered, and have since neither lost their link nor become silent."""
        return frozenset(self._heard)

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether the peer has answered, and has since neither lost its link nor become silent."""
        return peer in self._heard

    def is_linked(self, peer: NodeId) -> bool:
        """Whether the link to the peer is connected."""
        return peer in self._connected

    def declines(self, peer: NodeId) -> bool:
        """Whether the peer's last frame on the present link declined leadership."""
        return peer in self._declining

    def watch_peers(self, peers: Iterable[NodeId]) -> None:
        """Watch peers that share or have shared a group with this broker."""
        self._met.update(peers)

    def forget(self, peer: NodeId) -> None:
        """Forget a peer that shares no group with this broker. The transport reports the end of its links."""
        self._met.discard(peer)

    def heard(self, peer: NodeId) -> bool:
        """Note a frame from a peer; return whether the peer was unreachable before."""
        ticks, before = self.ticks, self._heard.get(peer)
        if before == ticks:  # nearly always
            return False
        self._heard[peer] = ticks
        if before is None:
            return True
        self._note_gap(peer, ticks - before)
        return False

    def fell_silent(self, peer: NodeId) -> None:
        """Note the length of a peer's silence, because of which its link will now be ended."""
        self._note_gap(peer, self.ticks - self._heard.get(peer, self.ticks))

    def _note_gap(self, peer: NodeId, gap: int) -> None:
        if gap > self._gaps.get(peer, 0):
            self._gaps[peer] = gap

    def said(self, peer: NodeId, *, declines_leadership: bool) -> None:
        """Note whether a peer declines leadership, because it is stopping or lacks room."""
        (self._declining.add if declines_leadership else self._declining.discard)(peer)

    def connected(self, peer: NodeId) -> None:
        """Note that the link to a peer is connected; from now on a silence of the peer counts."""
        self._connected[peer] = self.ticks

    def lost(self, peer: NodeId) -> None:
        """Note that a link to a peer has ended."""
        self._heard.pop(peer, None)
        self._connected.pop(peer, None)
        self._declining.discard(peer)

    def is_silent(self, peer: NodeId) -> bool:
        """Whether the link is connected, and no byte of the peer has arrived for longer than the peer may
        take.

        Bytes are counted, because a frame that is still arriving has not been reported to ``heard`` yet.
        """
        since = self._heard.get(peer, self._connected.get(peer, self.ticks))
        gap = max(self._gaps.get(peer, 0), self._gaps_before.get(peer, 0))
        limit = min(max(self._silence_ticks, SILENCE_GAPS * gap), SILENCE_MAX * self._silence_ticks)
        return self.ticks - since > limit and self._seconds_since_heard(peer) > limit * self._tick_s
