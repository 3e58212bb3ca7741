"""The members of a Raft group, and the index from which each membership is in force.

Decides the safe steps of a change (joint consensus, Raft 6, thesis 4.3). Leaves to others: when a step may be
taken (``changes``) and how majorities are counted (``quorum``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftlog.types import Index, NodeId


@dataclass(frozen=True, slots=True)
class Membership:
    """The voters and the learners of a group.

    While ``outgoing`` is not empty the membership is *joint*: every decision needs a majority of ``voters``
    and a majority of ``outgoing``. A voter that becomes a learner is in ``outgoing`` and in ``learners``
    meanwhile, and still votes.
    """

    voters: frozenset[NodeId]
    learners: frozenset[NodeId] = frozenset()  # get committed entries; never counted, never candidates
    outgoing: frozenset[NodeId] = frozenset()  # the voters before the change that is under way

    @property
    def is_joint(self) -> bool:
        """Whether a change of voters is under way."""
        return bool(self.outgoing)

    @property
    def halves(self) -> tuple[frozenset[NodeId], ...]:
        """The sets of voters that must each agree by majority: two sets while joint, else one."""
        return (self.voters, self.outgoing) if self.outgoing else (self.voters,)

    @property
    def all_voters(self) -> frozenset[NodeId]:
        """The voters of both halves together."""
        return self.voters | self.outgoing if self.outgoing else self.voters

    @property
    def members(self) -> frozenset[NodeId]:
        """All nodes that receive the log: voters and learners."""
        return self.voters | self.outgoing | self.learners

    def enter_joint(self, target: Membership) -> Membership:
        """The next step to ``target``: a joint membership if voters change, else ``target`` itself."""
        if target.voters == self.voters:
            return target
        return Membership(target.voters, target.learners, outgoing=self.voters)

    def leave_joint(self) -> Membership:
        """The membership that follows a joint one."""
        return Membership(self.voters, self.learners)


NOBODY = Membership(frozenset())
"""The membership of a replica that was added to a group, until its log contains a membership."""


@dataclass(frozen=True, slots=True)
class MembershipEntry:
    """A membership and its index in the log."""

    index: Index
    membership: Membership


class Memberships:
    """The memberships of one log, oldest first: first the membership just before the log.

    The newest membership is in force, committed or not (thesis 4.1). A truncation restores the previous
    membership.
    """

    __slots__ = ("_entries",)

    def __init__(self, snapshot: Index, membership: Membership, entries: Sequence[MembershipEntry]) -> None:
        """Start with the membership in force at ``snapshot``, just before the log, and the
        ``entries`` in it.
        """
        self._entries = [MembershipEntry(snapshot, membership), *entries]

    @property
    def base(self) -> Membership:
        """The membership in force just before the log."""
        return self._entries[0].membership

    @property
    def newest(self) -> MembershipEntry:
        """The newest membership, which is in force, and its index."""
        return self._entries[-1]

    def at(self, index: Index) -> Membership:
        """The membership in force at ``index``."""
        return next(
            (entry.membership for entry in reversed(self._entries) if entry.index <= index), self.base
        )

    def quorum_since(self, index: Index) -> int:
        """The size of the smallest majority of any membership in force at ``index`` or later.

        At least so many voters hold each entry that is committed at ``index``: a change is committed by a
        majority of the voters of the old membership, and that majority holds all earlier entries.
        """
        newest = self._entries[-1]
        quorum = len(newest.membership.voters) // 2 + 1
        if newest.index <= index:
            return quorum
        before = [entry.membership for entry in self._entries[1:-1] if entry.index > index]
        return min(quorum, *(len(each.voters) // 2 + 1 for each in (self.at(index), *before)))

    def have_named(self, node: NodeId) -> bool:
        """Whether the node is a member in any of these memberships."""
        return any(node in entry.membership.members for entry in self._entries)

    def votes_since(self, index: Index, node: NodeId) -> bool:
        """Whether the node is a voter in the membership in force at ``index`` or in a later membership."""
        return node in self.at(index).all_voters or any(
            node in entry.membership.all_voters for entry in self._entries if entry.index > index
        )

    def append(self, index: Index, membership: Membership) -> None:
        """Add the membership at ``index``."""
        self._entries.append(MembershipEntry(index, membership))

    def truncate(self, first_removed: Index) -> bool:
        """Remove the memberships at ``first_removed`` and later; return whether any was removed."""
        known = len(self._entries)
        while len(self._entries) > 1 and self._entries[-1].index >= first_removed:
            self._entries.pop()
        return len(self._entries) < known

    def truncate_prefix(self, snapshot: Index) -> None:
        """Remove the memberships that were replaced at or before ``snapshot``, after which the log begins."""
        base = self.at(snapshot)
        kept = [entry for entry in self._entries if entry.index > snapshot]
        self._entries = [MembershipEntry(snapshot, base), *kept]
