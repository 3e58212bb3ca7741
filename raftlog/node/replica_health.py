"""Which replicas keep up: health that is reported, never part of the commit rule.

A replica keeps up as long as it reaches, within the allowed time, the end that the log had when
it was last looked at. Under load its log is always a little behind; that alone is not lag.
"""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.core.ready import RaftStatus
from raftlog.types import Index, NodeId


class ReplicaHealth:
    """What a leader remembers of its peers' progress. Times are seconds of a monotonic clock."""

    def __init__(self, node_id: NodeId, membership: Membership) -> None:
        self._node_id = node_id
        self._peers = sorted(membership.voters - {node_id})
        self._goal: dict[NodeId, tuple[float, Index]] = {}  # the log's end at some moment
        self._caught_up: dict[NodeId, float] = {}  # the newest such moment whose end the peer has reached

    def forget(self, now: float) -> None:
        """A new term of office begins: everyone gets the benefit of the doubt once."""
        self._goal.clear()
        self._caught_up = dict.fromkeys(self._peers, now)

    def observe(self, status: RaftStatus, now: float) -> None:
        """Look at the peers' progress; called once a tick while leading."""
        last = status.last.index
        for peer in self._peers:
            goal = self._goal.get(peer)
            if goal is None:
                self._goal[peer] = goal = (now, last)
            if status.match_index.get(peer, -1) >= goal[1] and status.heard_ticks_ago.get(peer, 1) <= 1 << 30:
                self._caught_up[peer] = goal[0]
                self._goal[peer] = (now, last)

    def in_sync(
        self, status: RaftStatus, now: float, lag_messages_max: int | None, lag_ms_max: int
    ) -> frozenset[NodeId]:
        """The leader and every voter within the allowed lag in time and, if given, in messages."""
        return frozenset(
            [self._node_id]
            + [
                peer
                for peer in self._peers
                if (now - self._caught_up.get(peer, now)) * 1000 <= lag_ms_max
                and (
                    lag_messages_max is None
                    or status.last.index - status.match_index.get(peer, Index(-1)) < lag_messages_max
                )
            ]
        )
