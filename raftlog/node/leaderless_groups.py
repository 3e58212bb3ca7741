"""Groups of one broker whose leader is lost: some of them elect another one with each tick.

A broker that dies leaves hundreds of them. All at once, their votes would wait so long for the disk that
every election would time out, again and again.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import islice
from typing import Final

from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId, NodeId

ELECTIONS_PER_TICK: Final = 20  # their votes fit into one round of syncs


class LeaderlessGroups:
    """Those that have not been told yet, with the leader that each has lost."""

    def __init__(self, groups: Mapping[GroupId, RaftGroup[object]]) -> None:
        self._groups = groups
        self._lost: dict[GroupId, NodeId] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def peer_lost(self, peer: NodeId, active: Container[GroupId]) -> None:
        """Tell groups that a peer is lost: those that it led some at a time, ``active`` ones first."""
        for group_id, group in self._groups.items():
            if group.leader == peer:
                self._lost[group_id] = peer
            elif peer in group.membership.members:
                group.peer_unreachable(peer)
        self._lost = dict(sorted(self._lost.items(), key=lambda lost: lost[0] not in active))
        self.elect_some()

    def elect_some(self) -> None:
        """Tell as many as one tick allows, unless they have another leader by now."""
        for group_id in list(islice(self._lost, ELECTIONS_PER_TICK)):
            peer = self._lost.pop(group_id)
            group = self._groups.get(group_id)
            if group is not None and group.leader == peer:
                group.peer_unreachable(peer)
