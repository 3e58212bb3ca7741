"""Groups of one broker that have lost a peer, or hear from it again: some of them are told with each tick.

A broker that dies leaves hundreds without a leader. All at once, their votes would wait so long for the disk
that every election would time out, again and again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import islice
from typing import Final

from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId, NodeId

ELECTIONS_PER_TICK: Final = 20  # their votes fit into one round of syncs


class LeaderlessGroups:
    """Those that have not been told yet, with the leader that each has lost.

    Also quiescent groups led here that have lost a follower, or hear from it again: told after the others.
    """

    def __init__(self, groups: Mapping[GroupId, RaftGroup[object]]) -> None:
        self._groups = groups
        self._lost: dict[GroupId, NodeId] = {}
        self._led: dict[tuple[GroupId, NodeId], bool] = {}  # and whether the follower is reachable

    def __bool__(self) -> bool:
        return bool(self._lost or self._led)

    def peer_lost(self, peer: NodeId, active: Container[GroupId]) -> None:
        """Tell groups that a peer is lost: those that it led some at a time, ``active`` ones first."""
        for group_id, group in self._groups.items():
            if group.leader == peer:
                self._lost[group_id] = peer
            elif peer in group.membership.members:
                if group.is_leader and group_id not in active:
                    self._led[group_id, peer] = False
                else:
                    group.peer_unreachable(peer)
        self._lost = dict(sorted(self._lost.items(), key=lambda lost: lost[0] not in active))
        self.elect_some()

    def peer_reachable(self, peer: NodeId, active: Container[GroupId]) -> None:
        """Tell groups that a peer is heard from again."""
        for group_id, group in self._groups.items():
            if peer in group.membership.members:
                if group.is_leader and group_id not in active:
                    self._led[group_id, peer] = True
                else:
                    group.peer_reachable(peer)

    def elect_some(self) -> None:
        """Tell as many as one tick allows, unless they have another leader by now."""
        left = ELECTIONS_PER_TICK
        for group_id in list(islice(self._lost, left)):
            left -= 1
            peer = self._lost.pop(group_id)
            group = self._groups.get(group_id)
            if group is not None and group.leader == peer:
                group.peer_unreachable(peer)
        for group_id, peer in list(islice(self._led, left)):
            is_reachable = self._led.pop((group_id, peer))
            group = self._groups.get(group_id)
            if group is not None:
                (group.peer_reachable if is_reachable else group.peer_unreachable)(peer)
