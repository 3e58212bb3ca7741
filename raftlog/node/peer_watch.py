"""Which peers are reachable, and which have fallen silent on a link that stands.

Decides: when a peer counts as reachable and as silent. Leaves to others: what follows (``group_host``).
Time is counted in this process's own ticks: while it was held up no tick passed, and no peer was silent.

A peer on a busy machine sends its frames late. If it counted as lost, its groups would hold elections, which
make all brokers busier, and more frames late. A peer is therefore silent only after a multiple of the longest
gap between its recent frames: an accrual failure detector (Hayashibara et al., 2004) without its statistics.
The silence for which its link was ended is such a gap, too: a peer that is slow from one moment on keeps its
next link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from raftlog.types import NodeId

PACE_TICKS: Final = 200  # a gap between frames counts for one to two times this long
SILENCE_GAPS: Final = 3  # a silence is longer than this many of the longest gaps
SILENCE_MAX: Final = 6  # in shortest election timeouts: what is longer is a silence whatever the gaps


class PeerWatch:
    """The peers of one broker. ``seconds_since_heard`` is the transport's, which counts any bytes."""

    def __init__(
        self, silence_ticks: int, tick_ms: int, seconds_since_heard: Callable[[NodeId], float]
    ) -> None:
        self._silence_ticks = silence_ticks
        self._tick_s = tick_ms / 1000
        self._seconds_since_heard = seconds_since_heard
        self._met: set[NodeId] = set()
        self._heard: dict[NodeId, int] = {}  # peers that are reachable, and when they were last heard
        self._connected: dict[NodeId, int] = {}  # peers with an open link, and since when
        self._declining: set[NodeId] = set()  # peers that want no leadership
        # The longest gap between two frames of each peer, in these ``PACE_TICKS`` and in those before.
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
        """Peers that want to hear that this broker is alive: those of its groups, and linked ones."""
        return sorted(self._met | self._connected.keys())

    @property
    def successors(self) -> list[NodeId]:
        """Peers that may lead: reachable, and not declining it."""
        return [peer for peer in self._heard if peer not in self._declining]

    @property
    def reachable(self) -> frozenset[NodeId]:
        """Peers that were heard, and have neither lost their link since nor fallen silent."""
        return frozenset(self._heard)

    def is_reachable(self, peer: NodeId) -> bool:
        """Whether it was heard, and has neither lost its link since nor fallen silent."""
        return peer in self._heard

    def is_linked(self, peer: NodeId) -> bool:
        """Whether the link to it stands."""
        return peer in self._connected

    def declines(self, peer: NodeId) -> bool:
        """Whether it said so last, on the link that stands."""
        return peer in self._declining

    def watch_peers(self, peers: Iterable[NodeId]) -> None:
        """Watch peers that take part in a group with this broker, or did."""
        self._met.update(peers)

    def forget(self, peer: NodeId) -> None:
        """Forget a peer that takes part in no group any more. The transport reports the end of its links."""
        self._met.discard(peer)

    def heard(self, peer: NodeId) -> bool:
        """A frame has come from it; whether it was unreachable before."""
        ticks, before = self.ticks, self._heard.get(peer)
        if before == ticks:  # nearly always
            return False
        self._heard[peer] = ticks
        if before is None:
            return True
        self._note_gap(peer, ticks - before)
        return False

    def fell_silent(self, peer: NodeId) -> None:
        """Note the gap of a silent peer, whose link is about to be ended."""
        self._note_gap(peer, self.ticks - self._heard.get(peer, self.ticks))

    def _note_gap(self, peer: NodeId, gap: int) -> None:
        if gap > self._gaps.get(peer, 0):
            self._gaps[peer] = gap

    def said(self, peer: NodeId, *, declines_leadership: bool) -> None:
        """Note whether a peer declines leadership, since it is stopping or lacks room."""
        (self._declining.add if declines_leadership else self._declining.discard)(peer)

    def connected(self, peer: NodeId) -> None:
        """The link to it stands: from now on it is to be heard."""
        self._connected[peer] = self.ticks

    def lost(self, peer: NodeId) -> None:
        """A link has ended."""
        self._heard.pop(peer, None)
        self._connected.pop(peer, None)
        self._declining.discard(peer)

    def is_silent(self, peer: NodeId) -> bool:
        """Whether a link stands and nothing has come for longer than the peer may take.

        Not even bytes: a frame that is still coming in has not been counted as heard yet.
        """
        since = self._heard.get(peer, self._connected.get(peer, self.ticks))
        gap = max(self._gaps.get(peer, 0), self._gaps_before.get(peer, 0))
        limit = min(max(self._silence_ticks, SILENCE_GAPS * gap), SILENCE_MAX * self._silence_ticks)
        return self.ticks - since > limit and self._seconds_since_heard(peer) > limit * self._tick_s
