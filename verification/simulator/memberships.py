"""Checks the memberships of the metadata group in every run: brokers may join, leave and be decommissioned.

Two consecutive committed memberships must not have disjoint majorities (I36). A broker that joins must not
vote before a log has named it as a voter (I37). Leaves to others: who joins (``scenarios.joining``), and that
the members at the end are the intended ones (``convergence``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from raftlog.core.membership import Membership
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import METADATA_GROUP, GroupId, NodeId
from verification.simulator.machine import Machine
from verification.simulator.records import GroupRecord, ReplicaRecord
from verification.simulator.simulated_cluster import SimulatedCluster

OVERLAP: Final = "I36 memberships that follow one another share a majority"
NO_EARLY_VOTE: Final = "I37 a joined broker votes once it is a voter"


class Memberships:
    """The memberships of the metadata group in one run, and their checks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._named: set[NodeId] = {machine.node for machine in cluster.machines}
        self._checked: dict[int, Membership] = {}  # committed ones, by index

    def voted(self, machine: Machine, group: GroupId, candidate: NodeId) -> None:
        """Check a vote that a broker sends, for itself or for another candidate."""
        if group == METADATA_GROUP and machine.node not in self._named:
            detail = f"{machine.name} votes for {candidate}, and no log names it as a voter"
            self._cluster.violated(NO_EARLY_VOTE, detail)

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """Check the membership of a replica whose files or numbers have changed."""
        if record.group_id != METADATA_GROUP:
            return
        self._named |= group.membership.all_voters
        memberships = group._core.memberships
        if memberships.newest.index in self._checked or memberships.newest.index > group.commit_index:
            return
        known = [each for each in memberships._entries if each.membership.voters]
        for earlier, later in pairwise(known):
            self._checked[earlier.index] = earlier.membership
            if later.index <= group.commit_index and not share_majorities(
                earlier.membership, later.membership
            ):
                detail = f"{earlier.membership} at {earlier.index}, {later.membership} at {later.index}"
                self._cluster.violated(OVERLAP, detail)
        self._checked[memberships.newest.index] = memberships.newest.membership


def share_majorities(one: Membership, other: Membership) -> bool:
    """Return whether every quorum of one membership has a member in every quorum of the other.

    A quorum of a joint membership has a majority of each half. So it is enough that all majorities of one
    half overlap with all majorities of a half of the other membership.
    """
    return any(_overlap(half, other_half) for half in one.halves for other_half in other.halves)


def _overlap(one: frozenset[NodeId], other: frozenset[NodeId]) -> bool:
    shared = len(one & other)
    needed = max(0, len(one) // 2 + 1 - (len(one) - shared))
    other_needed = max(0, len(other) // 2 + 1 - (len(other) - shared))
    return needed + other_needed > shared
