"""The health of replicas: which replicas keep up. It is reported, and never part of the commit rule.

A replica keeps up as long as its replies arrive, and its log reaches, within the allowed time, the end that
the leader's log had at the last observation. Under load its log is always a little behind; that alone is not
lag.

Time is counted in ticks, as in the core. No ticks are counted while the group is quiescent, so when a group
becomes active again, no peer counts as silent for that time. If a group became quiescent without a peer, that
peer lags until it has caught up.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Protocol

from raftlog.core.membership import Membership
from raftlog.types import EntryId, Index, NodeId


class Progress(Protocol):
    """Indexes of a leader and its voters: the part of the status that every produce request needs."""

    @property
    def last(self) -> EntryId:
        """The newest entry of the leader's log."""

    @property
    def match_index(self) -> Mapping[NodeId, Index]:
        """For each voter, the index up to which its durable log is known to equal the leader's."""


class HeardProgress(Progress, Protocol):
    """The progress of a leader and its voters, and the time of each voter's last reply."""

    @property
    def heard_ticks_ago(self) -> Mapping[NodeId, int]:
        """Ticks since each voter's last reply."""


class ReplicaHealth:
    """For each peer of a leader, the time of its last progress."""

    def __init__(self, node_id: NodeId, membership: Membership, tick_ms: int) -> None:
        self._node_id = node_id
        self._voters = membership.voters
        self._peers = sorted(membership.voters - {node_id})
        self._tick_ms = tick_ms
        self._now = 0  # ticks
        self._goal: dict[NodeId, tuple[int, Index]] = {}  # a tick, and the log's end at that tick
        self._caught_up: dict[NodeId, int] = {}  # the newest such tick whose end the peer has reached
        self._left_out: Set[NodeId] = frozenset()  # peers without which the group has become quiescent

    def forget(self) -> None:
        """Begin a leader epoch: each peer counts as healthy until its first timeout."""
        self._goal.clear()
        self._left_out = frozenset()
        self._caught_up = dict.fromkeys(self._peers, self._now)

    def apply_membership(self, membership: Membership) -> None:
        """Use another membership: each new member counts as healthy until its first timeout."""
        self._voters = membership.voters
        self._peers = sorted(membership.voters - {self._node_id})
        self._goal = {peer: goal for peer, goal in self._goal.items() if peer in membership.voters}
        self._caught_up = {peer: self._caught_up.get(peer, self._now) for peer in self._peers}

    def quiesced_without(self, unreachable: Set[NodeId]) -> None:
        """Count the peers in ``unreachable`` as lagging: the group has become quiescent without them.

        A quiescent group counts no ticks, so their silence could not be measured.
        """
        self._left_out = self._left_out | unreachable

    def observe(self, status: HeardProgress, unreachable: Set[NodeId] = frozenset()) -> None:
        """Observe the peers' progress; called once a tick while leading."""
        self._now = now = self._now + 1
        last = status.last.index
        heard_ticks_ago, match_index = status.heard_ticks_ago, status.match_index
        for peer in self._peers:
            if peer in unreachable:
                self._goal.pop(peer, None)
                continue
            since, end = self._goal.setdefault(peer, (now, last))
            has_spoken = heard_ticks_ago.get(peer, now) <= now - since
            if has_spoken and match_index.get(peer, -1) >= end:
                self._caught_up[peer] = since
                self._goal[peer] = (now, last)
                self._left_out = self._left_out - {peer}

    def in_sync(self, status: Progress, lag_records_max: int | None, lag_ms_max: int) -> frozenset[NodeId]:
        """The voters, including the leader, within the allowed lag in time and, if given, in records."""
        found = {self._node_id} & self._voters
        now, tick_ms = self._now, self._tick_ms
        for peer in self._peers:
            if peer in self._left_out or (now - self._caught_up.get(peer, now)) * tick_ms > lag_ms_max:
                continue
            if lag_records_max is not None:
                behind = status.last.index - status.match_index.get(peer, Index(-1))
                if behind >= lag_records_max:
                    continue
            found.add(peer)
        return frozenset(found)
