"""Groups of one broker that have lost a peer or can reach it again: a few of them are notified at each tick.

A broker that dies leaves hundreds of groups without a leader. If all of them campaigned at once, their votes
would wait so long for the disk that every election would time out, again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from itertools import islice
from typing import Final

from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId, NodeId

ELECTIONS_PER_TICK: Final = 20  # their votes fit into one round of syncs


class LeaderlessGroups:
    """The groups that have lost their leader and are not notified yet, each with the lost leader.

    The queue also holds quiescent groups led here that have lost a follower, or can reach it again: these
    groups are notified last. The peer's state at the time of the notification counts: the peer may have been
    lost and have returned since.
    """

    def __init__(
        self, groups: Mapping[GroupId, RaftGroup[object]], is_reachable: Callable[[NodeId], bool]
    ) -> None:
        self._groups = groups
        self._is_reachable = is_reachable
        self._lost: dict[tuple[GroupId, NodeId], None] = {}
        self._led: dict[tuple[GroupId, NodeId], bool] = {}  # the value: whether the follower was lost

    def __bool__(self) -> bool:
        return bool(self._lost or self._led)

    def opened(self, group: RaftGroup[object]) -> None:
        """Notify a newly opened group of its unreachable peers."""
        for peer in group.membership.members:
            if not self._is_reachable(peer):
                group.peer_unreachable(peer)

    def peer_lost(self, peer: NodeId, active: Container[GroupId]) -> None:
        """Note the loss of a peer; groups that it led are notified a few at a time, ``active``
        groups first.
        """
        for group_id, group in self._groups.items():
            if group.leader == peer:
                self._lost[group_id, peer] = None
            elif peer in group.membership.members:
                if group.is_leader and group_id not in active:
                    self._led[group_id, peer] = True
                else:
                    group.peer_unreachable(peer)
        self._lost = dict(sorted(self._lost.items(), key=lambda lost: lost[0][0] not in active))
        self.elect_some()

    def peer_reachable(self, peer: NodeId, active: Container[GroupId]) -> None:
        """Notify groups that a peer is reachable again, if they were notified of its loss."""
        for group_id, group in self._groups.items():
            if peer in group.unreachable:
                if group.is_leader and group_id not in active:
                    self._led.setdefault((group_id, peer), False)
                else:
                    group.peer_reachable(peer)

    def elect_some(self) -> None:
        """Notify as many waiting groups as one tick allows."""
        left = ELECTIONS_PER_TICK
        for group_id, peer in list(islice(self._lost, left)):
            left -= 1
            del self._lost[group_id, peer]
            group = self._groups.get(group_id)
            if group is not None:
                self._tell(group, peer, had_effect=group.leader == peer)
        for group_id, peer in list(islice(self._led, left)):
            was_lost = self._led.pop((group_id, peer))
            group = self._groups.get(group_id)
            if group is not None:
                self._tell(group, peer, had_effect=was_lost and group.is_leader)

    def _tell(self, group: RaftGroup[object], peer: NodeId, *, had_effect: bool) -> None:
        """Notify a group of a peer's state. ``had_effect``: the peer or this broker leads the group.

        In that case a loss that is over counts, too.
        """
        is_reachable = self._is_reachable(peer)
        if had_effect or not is_reachable:
            group.peer_unreachable(peer)
        if is_reachable:
            group.peer_reachable(peer)
