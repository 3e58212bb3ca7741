"""Membership changes of a leader: one at a time, each in safe steps.

Decides when a change may begin, what its next entry is, and when it is finished. While voters change, the
membership is joint; once the joint membership is committed, the next entry ends the joint state (Raft 6,
thesis 4.3). Leaves to others: which change to make, such as promoting a learner that has caught up.
"""

from __future__ import annotations

from raftlog.core.entries import EntryKind
from raftlog.core.invariants import require_safe_change
from raftlog.core.member import Member
from raftlog.core.membership import Membership
from raftlog.core.peers import Peers
from raftlog.core.ready import RefusalReason
from raftlog.types import EntryId, Index, NodeId


class Changes:
    """The membership change that is under way while one leader leads, if any."""

    __slots__ = ("_member", "_peers", "open_index")

    def __init__(self, member: Member, peers: Peers) -> None:
        """Continue a change that an earlier leader began."""
        self._member = member
        self._peers = peers
        newest = member.memberships.newest
        # The index of the newest membership while it is joint or not known to be committed.
        self.open_index: Index | None = None
        if newest.index > member.commit_index:
            self.open_index = newest.index
        elif newest.membership.is_joint:
            self._append(newest.membership.leave_joint(), 0)

    def refusal(self, target: Membership) -> RefusalReason | None:
        """The reason why the membership cannot become ``target`` now; None if it can."""
        if self.open_index is not None:
            return RefusalReason.CHANGE_PENDING
        if target.outgoing:
            return RefusalReason.JOINT_TARGET
        if not target.voters:
            return RefusalReason.NO_VOTERS
        if target.voters & target.learners:
            return RefusalReason.VOTING_LEARNER
        if target == self._member.membership and self._has_committed:
            return RefusalReason.NO_CHANGE
        return None if self._enough_know(target.voters) else RefusalReason.STRANGERS

    @property
    def _has_committed(self) -> bool:
        """Whether an entry of this leader's term is committed.

        Before that, another member may hold a change of an earlier leader, and finish that change if it is
        elected.
        """
        member = self._member
        return member.terms.term_at(member.commit_index) == member.term

    def begin(self, target: Membership, now: int) -> EntryId:
        """Append the first step of the change to ``target``.

        Call only after ``refusal`` has returned None.
        """
        return self._append(self._member.membership.enter_joint(target), now)

    def advance(self, now: int) -> bool:
        """Take the next step after the newest membership was committed; return whether the change is over.

        A joint membership is followed by a membership that is not joint.
        """
        self.open_index = None
        membership = self._member.membership
        if membership.is_joint:
            self._append(membership.leave_joint(), now)
        return not membership.is_joint

    def _enough_know(self, voters: frozenset[NodeId]) -> bool:
        """Whether every added voter, and a majority of all voters, hold the newest membership.

        A member whose log never named it gives no vote: with such voters a group might elect no leader after
        this leader fails. Learners begin with such a log, and so does an initial replica that opens late. A
        member that rejoins gives no vote either, and a learner whose connection broke may rejoin: the leader
        must first get a reply from it.
        """
        newest, progress = self._member.memberships.newest, self._peers.progress
        matches = self._peers.match_index(voters)
        know = {node for node, match in matches.items() if match >= newest.index}
        ready = {node for node in know & newest.membership.learners if not progress[node].is_out_of_contact}
        added = voters - newest.membership.voters
        know_or_lead = know | (voters & {self._member.id})
        return added <= ready and 2 * len(know_or_lead) > len(voters)

    def _append(self, membership: Membership, now: int) -> EntryId:
        """Append a membership.

        Each member, from this leader on, follows it as soon as it appends it (4.1).
        """
        member = self._member
        newest = member.memberships.newest
        require_safe_change(newest.membership, newest.index, member.commit_index, membership)
        self.open_index = index = Index(member.terms.last_index + 1)
        member.append(member.term, index, index, EntryKind.MEMBERSHIP, membership)
        self._peers.apply_membership(now)
        return EntryId(member.term, index)
