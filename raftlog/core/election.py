"""Elections: requesting votes, counting them, and voting for others.

A member first asks whether it would be elected (pre-vote, thesis 9.6), which changes no state on any member;
only after a won pre-vote does the member raise its term and request votes. Its own vote counts, and its
requests leave, when the new term is durable.
"""

from __future__ import annotations

from raftlog.core.member import Member
from raftlog.core.messages import VoteReply, VoteRequest
from raftlog.core.quorum import Election, election_outcome
from raftlog.core.ready import Role
from raftlog.core.role_state import RoleState
from raftlog.types import BEFORE_LOG, NodeId, Term


class Candidate(RoleState):
    """The role of a member that campaigns, in a pre-vote or in an election."""

    __slots__ = ("_asked", "_elapsed_ticks", "_is_pre_vote", "_is_transfer", "_timeout_ticks", "_votes")

    def __init__(self, member: Member, *, is_pre_vote: bool, is_transfer: bool) -> None:
        """Start a pre-vote or an election. ``is_transfer``: by order of the leader, so no voter refuses."""
        super().__init__(member, Role.PRE_CANDIDATE if is_pre_vote else Role.CANDIDATE, None)
        self._is_pre_vote = is_pre_vote
        self._is_transfer = is_transfer
        self._elapsed_ticks = 0
        self._timeout_ticks = member.election_timeout()
        self._votes: dict[NodeId, bool] = {}
        self._asked = Term(member.term + 1)  # the term of the requests

    def start(self) -> Role | None:
        """Request votes. A group of one member wins at once, or when its term is durable."""
        member = self._member
        if self._is_pre_vote:
            request = VoteRequest(term=self._asked, last=member.newest_durable, is_pre_vote=True)
            for peer in self._other_voters():
                member.send(peer, request)
            return self._count(member.id, granted=True)
        member.enter_term(self._asked, voted_for=member.id)
        return None

    def tick(self) -> Role | None:
        """After an election timeout, start again with a pre-vote.

        The timeout begins when the vote requests are sent, so a slow disk does not shorten it.
        """
        if not self._is_pre_vote and self._member.id not in self._votes:
            return None
        self._elapsed_ticks += 1
        return Role.PRE_CANDIDATE if self._elapsed_ticks >= self._timeout_ticks else None

    def write_finished(self) -> Role | None:
        """Request votes, and count the member's own vote, once that vote is durable."""
        member = self._member
        if self._is_pre_vote or member.id in self._votes or not member.writes.hard_state_is_durable:
            return None
        request = VoteRequest(term=member.term, last=member.newest_durable, is_transfer=self._is_transfer)
        for peer in self._other_voters():
            member.send(peer, request)
        return self._count(member.id, granted=True)

    def candidate_is_behind(self) -> None:
        """Request votes again at the next tick: a voter that campaigns does not refuse because of
        a leader.
        """
        if self._is_pre_vote:
            self._timeout_ticks = self._elapsed_ticks + 1

    def receive_vote(self, sender: NodeId, reply: VoteReply) -> Role | None:
        """Count a reply to the present vote request; ignore replies to earlier requests."""
        answers_this = reply.asked == self._asked and reply.is_pre_vote == self._is_pre_vote
        if not answers_this or sender not in self._member.membership.all_voters:
            return None
        return self._count(sender, granted=reply.granted)

    def _other_voters(self) -> list[NodeId]:
        return sorted(self._member.membership.all_voters - {self._member.id})

    def _count(self, voter: NodeId, *, granted: bool) -> Role | None:
        self._votes.setdefault(voter, granted)
        outcome = election_outcome(self._member.membership.halves, self._votes)
        if outcome is Election.OPEN:
            return None
        if outcome is Election.LOST:
            return Role.FOLLOWER
        return Role.CANDIDATE if self._is_pre_vote else Role.LEADER


def answer_pre_vote(member: Member, candidate: NodeId, request: VoteRequest, *, is_sticky: bool) -> None:
    """Reply whether this member would vote for the candidate, without a change of this member's state."""
    is_new_enough = request.last >= member.newest_durable
    granted = request.term > member.term and not is_sticky and is_new_enough and member.may_vote
    reply = VoteReply(term=member.term, asked=request.term, granted=granted, is_pre_vote=True)
    member.send(candidate, reply)


def answer_vote(member: Member, candidate: NodeId, request: VoteRequest) -> bool:
    """Vote for the candidate or refuse (Raft 5.2, 5.4.1); return whether the vote is given."""
    may_vote = member.voted_for in (None, candidate) and member.may_vote
    if request.term != member.term or not may_vote or request.last < member.newest_durable:
        member.send(candidate, VoteReply(term=member.term, asked=request.term, granted=False))
        return False
    if member.voted_for is None:
        member.vote(candidate)
    reply = VoteReply(term=member.term, asked=request.term, granted=True)
    member.send_when_durable(candidate, reply, BEFORE_LOG.index)
    return True
