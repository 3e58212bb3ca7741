"""The rules of Ongaro's thesis (4.1, 4.2.1) on memberships and learners, one test each."""

from raftlog.core.inputs import Campaign, ConfirmRead, Propose, TransferLeadership
from raftlog.core.membership import MembershipEntry
from raftlog.core.messages import Heartbeat, HeartbeatReply, TimeoutNow, VoteReply, VoteRequest
from raftlog.core.ready import Appended, ReadConfirmed, RefusalReason, Refused, Role
from raftlog.types import BEFORE_LOG, Index, NodeId, Term, Token
from tests.helpers.raft_change import FIVE, FOUR, change, leader, learn, written
from tests.helpers.raft_member import (
    ELECTION_TICKS,
    ME,
    THREE,
    TWO,
    MemberUnderTest,
    append,
    changed,
    entry,
    members,
    span,
)

# 4.1 Safety


def test_a_membership_is_in_force_as_soon_as_it_stands_in_the_log_thesis_4_1() -> None:
    # requirement: F1
    member = MemberUnderTest(slow_disk=True)
    joint = members(1, 2, 4, outgoing=[1, 2, 3])
    member.hear(TWO, append(1, BEFORE_LOG, changed(1, 0, joint)))
    assert member.core.membership == joint
    assert member.told == [joint]
    assert member.core.commit_index == -1
    assert member.writes[-1].spans == (changed(1, 0, joint),)


def test_a_membership_that_is_truncated_gives_way_to_the_one_before_thesis_4_1() -> None:
    member = MemberUnderTest()
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 0), changed(1, 1, members(1, 2, outgoing=[1, 2, 3]))))
    member.hear(THREE, append(2, entry(1, 0), span(2, 1, 1)))
    assert member.core.membership == members(1, 2, 3)
    assert member.told[-1] == members(1, 2, 3)


def test_a_membership_that_is_truncated_after_a_restart_gives_way_to_the_one_before_thesis_4_1() -> None:
    first, second = members(1, 2, 3, learners=[4]), members(1, 2, 4, outgoing=[1, 2, 3])
    member = MemberUnderTest(
        membership=members(1, 2, 3),
        term=1,
        runs=[(1, 5)],
        memberships=[MembershipEntry(Index(1), first), MembershipEntry(Index(4), second)],
    )
    assert member.core.membership == second
    member.hear(TWO, append(2, entry(1, 3), span(2, 4, 4)))
    assert member.core.membership == first
    member.hear(TWO, append(3, entry(1, 0), span(3, 1, 1)))
    assert member.core.membership == members(1, 2, 3)


def test_one_change_at_a_time_thesis_4_1() -> None:
    member = leader(members(1, 2, 3))
    change(member, members(1, 2, 3, learners=[4]))
    change(member, members(1, 2, 3, learners=[5]), token=2)
    assert member.settled == [
        Appended(Token(1), entry(2, 1)),
        Refused(Token(2), ME, RefusalReason.CHANGE_PENDING),
    ]
    member.acknowledge(TWO, 1)
    change(member, members(1, 2, 3), token=3)
    assert member.settled[-1] == Appended(Token(3), entry(2, 2))


def test_a_change_that_an_earlier_leader_began_must_be_committed_first_thesis_4_1() -> None:
    member = MemberUnderTest(
        term=1, runs=[(1, 2)], memberships=[MembershipEntry(Index(1), members(1, 2, 3, learners=[4]))]
    )
    member.become_leader(caught_up=False)
    change(member, members(1, 2, 3))
    assert member.settled[-1] == Refused(Token(1), ME, RefusalReason.CHANGE_PENDING)
    member.acknowledge(TWO, 2)  # the leader change entry
    change(member, members(1, 2, 3), token=2)
    assert isinstance(member.settled[-1], Appended)


def test_entries_of_a_leader_that_our_membership_does_not_name_are_taken_thesis_4_1() -> None:
    member = MemberUnderTest()
    member.hear(NodeId(9), append(1, BEFORE_LOG, span(1, 0, 3)))
    assert member.core.last == entry(1, 3)


# 4.2.1 Learners


def test_a_learner_gets_entries_and_heartbeats_thesis_4_2_1() -> None:
    # requirement: F2
    member = leader(members(1, 2, 3))
    change(member, members(1, 2, 3, learners=[4]))
    assert [request.previous for request in member.replicated if request.to == FOUR] == [entry(1, 0)]
    member.tick(3)
    assert member.said(Heartbeat, FOUR)
    member.acknowledge(FOUR, 0)
    member.acknowledge(TWO, 1)
    assert [(request.first, request.last) for request in member.replicated if request.to == FOUR][-1] == (
        1,
        1,
    )
    member.acknowledge(FOUR, 1)
    status = member.core.status()
    assert status.learner_match_index == {FOUR: 1}
    assert FOUR not in status.match_index


def test_a_learner_gets_what_is_committed_and_no_more() -> None:
    """A candidate may need a learner's vote by a membership that makes it a voter and is not committed.

    If the learner had entries of a leader that has lost its disk, it could refuse that vote, and it does
    not stand for election itself: nobody could win.
    """
    member = leader(members(1, 2, 3))
    learn(member, 4)
    member.feed(Propose(Token(9), 1))
    last = member.core.last.index
    assert {request.to for request in member.replicated} == {TWO, THREE}
    for _ in range(3):  # nor is it behind: nothing is asked of it again
        member.tick()
        member.hear(FOUR, HeartbeatReply(term=Term(2), round=member.said(Heartbeat, FOUR)[-1].round))
    assert {request.to for request in member.replicated} == {TWO, THREE}
    member.acknowledge(TWO, last)
    assert [(request.first, request.last) for request in member.replicated if request.to == FOUR] == [
        (last, last)
    ]


def test_a_learner_gets_what_the_leaders_own_disk_commits() -> None:
    member = MemberUnderTest(membership=members(1, learners=[2]), term=1, runs=[(1, 1)])
    member.feed(Campaign())
    member.acknowledge(TWO, member.core.last.index)
    member.forget()
    member.feed(Propose(Token(9), 1))
    last = member.core.last.index
    assert [(request.first, request.last) for request in member.replicated] == [(last, last)]


def test_a_learner_that_becomes_a_voter_gets_everything_at_once() -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4)
    change(member, members(1, 2, 3, 4))
    assert {request.to for request in member.replicated} == {TWO, THREE, FOUR}


def test_a_learner_never_counts_thesis_4_2_1() -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4, 5)
    member.feed(Propose(Token(9), 1), ConfirmRead(Token(10)))
    for learner in (FOUR, FIVE):
        member.acknowledge(learner, member.core.last.index)
        member.hear(learner, HeartbeatReply(term=Term(2), round=9))
    assert member.core.commit_index == member.core.last.index - 1
    assert not any(isinstance(settled, ReadConfirmed) for settled in member.settled)
    for _ in range(ELECTION_TICKS):
        member.hear(FOUR, HeartbeatReply(term=Term(2), round=9))
        member.tick()
    assert member.core.role is Role.FOLLOWER


def test_a_learner_never_stands_for_election_and_is_never_asked_thesis_4_2_1() -> None:
    learner = MemberUnderTest(membership=members(2, 3, learners=[1]))
    learner.feed(Campaign())
    learner.hear(TWO, Heartbeat(term=Term(1), commit_index=Index(-1), round=1), TimeoutNow(term=Term(1)))
    learner.tick(9 * ELECTION_TICKS)
    assert learner.core.role is Role.FOLLOWER
    candidate = MemberUnderTest(membership=members(1, 2, 3, learners=[4]))
    candidate.become_candidate()
    assert {to for to, message in candidate.sent if isinstance(message, VoteRequest)} == {TWO, THREE}
    candidate.hear(FOUR, VoteReply(term=Term(1), asked=Term(1), granted=True))
    assert candidate.core.role is Role.CANDIDATE


def test_learners_come_and_go_in_one_step_thesis_4_2_1() -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4)
    change(member, members(1, 2, 3, learners=[5]))
    assert written(member) == [members(1, 2, 3, learners=[5])]


def test_leadership_is_handed_to_voters_only() -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4)
    member.feed(TransferLeadership(FOUR))
    assert member.said(TimeoutNow) == []
