"""The rules of Ongaro's thesis (4.2.2, 4.2.3, 4.3; the paper's 6) on changes of voters, one test each."""

import pytest

from raftlog.core.inputs import Campaign, ConfirmRead, PeerUnreachable, Propose, TransferLeadership
from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.messages import AppendRequest, Heartbeat, HeartbeatReply, TimeoutNow, VoteReply, VoteRequest
from raftlog.core.ready import Appended, ReadConfirmed, RefusalReason, Refused, Role
from raftlog.types import Index, NodeId, Term, Token
from tests.helpers.raft_change import FIVE, FOUR, change, leader, learn, written
from tests.helpers.raft_member import (
    ELECTION_TICKS,
    ME,
    THREE,
    TWO,
    MemberUnderTest,
    entry,
    members,
)

# 4.3 Joint consensus


def test_voters_change_by_a_joint_membership_which_is_left_once_committed_thesis_4_3() -> None:
    # requirement: F1
    # requirement: F2
    member = leader(members(1, 2, 3))
    learn(member, 4)
    change(member, members(1, 2, 4))
    joint = members(1, 2, 4, outgoing=[1, 2, 3])
    assert written(member) == [joint]
    member.acknowledge(TWO, 2)
    assert written(member) == [joint, members(1, 2, 4)]
    assert member.core.membership == members(1, 2, 4)
    member.acknowledge(TWO, 3)
    status = member.core.status()
    assert (status.membership, status.membership_index, status.commit_index) == (members(1, 2, 4), 3, 3)


@pytest.mark.parametrize(
    ("acknowledging", "is_committed"), [((2,), False), ((4, 5), False), ((2, 4), True), ((3, 5), True)]
)
def test_a_joint_membership_commits_by_both_majorities_thesis_4_3(
    acknowledging: tuple[int, ...], is_committed: bool
) -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4, 5)
    change(member, members(1, 4, 5))
    for peer in acknowledging:
        member.acknowledge(NodeId(peer), 2)
    assert (member.core.commit_index >= 2) is is_committed


@pytest.mark.parametrize(("granting", "has_won"), [((2,), False), ((4, 5), False), ((2, 4), True)])
def test_a_joint_membership_elects_by_both_majorities_thesis_4_3(
    granting: tuple[int, ...], has_won: bool
) -> None:
    member = MemberUnderTest(membership=members(1, 4, 5, outgoing=[1, 2, 3]))
    member.feed(Campaign())
    assert {to for to, _ in member.sent} == {TWO, THREE, FOUR, FIVE}
    for peer in granting:
        member.hear(NodeId(peer), VoteReply(term=Term(0), asked=Term(1), granted=True, is_pre_vote=True))
    assert (member.core.role is Role.CANDIDATE) is has_won
    for peer in granting:
        member.hear(NodeId(peer), VoteReply(term=Term(1), asked=Term(1), granted=True))
    assert (member.core.role is Role.LEADER) is has_won


@pytest.mark.parametrize(("hearing", "leads"), [((2, 3), False), ((4, 5), False), ((2, 4), True)])
def test_a_joint_membership_checks_both_quorums_and_reads_by_both_thesis_4_3(
    hearing: tuple[int, ...], leads: bool
) -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4, 5)
    change(member, members(1, 4, 5))
    member.feed(ConfirmRead(Token(9)))
    for _ in range(2 * ELECTION_TICKS):
        member.tick()
        for peer in hearing:
            member.hear(NodeId(peer), HeartbeatReply(term=Term(2), round=member.said(Heartbeat)[-1].round))
    assert (member.core.role is Role.LEADER) is leads
    assert any(isinstance(settled, ReadConfirmed) for settled in member.settled) is leads


def test_a_new_leader_leaves_a_joint_membership_that_is_committed_thesis_4_3() -> None:
    member = MemberUnderTest(membership=members(1, 2, 4, outgoing=[1, 2, 3]), term=1, runs=[(1, 1)], commit=0)
    member.become_candidate()
    for peer in (TWO, THREE, FOUR):
        member.hear(peer, VoteReply(term=member.core.term, asked=member.core.term, granted=True))
    assert written(member) == [members(1, 2, 4)]


def test_a_new_leader_leaves_a_joint_membership_as_soon_as_it_has_committed_it_thesis_4_3() -> None:
    joint = members(1, 2, 4, outgoing=[1, 2, 3])
    member = MemberUnderTest(term=1, runs=[(1, 1)], memberships=[MembershipEntry(Index(0), joint)])
    member.become_leader(caught_up=False)
    assert written(member) == []
    member.acknowledge(TWO, 1)
    assert written(member) == [members(1, 2, 4)]


def test_a_new_leader_without_entries_writes_its_membership_anew_thesis_4_1() -> None:
    """Another member may hold a change of an earlier leader, and finish it if it were elected."""
    member = MemberUnderTest()
    member.become_leader()
    change(member, members(1, 2, 3))
    assert written(member) == [members(1, 2, 3)]
    member.acknowledge(TWO, member.core.last.index)
    member.settled.clear()
    change(member, members(1, 2, 3))
    assert member.settled == [Refused(Token(1), ME, RefusalReason.NO_CHANGE)]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (members(1, 2, 3, learners=[4]), RefusalReason.NO_CHANGE),
        (members(learners=[4]), RefusalReason.NO_VOTERS),
        (members(1, 2, 3, 4, learners=[4]), RefusalReason.VOTING_LEARNER),
        (members(1, 2, 4, outgoing=[3]), RefusalReason.JOINT_TARGET),
        (members(1, 2, 5), RefusalReason.STRANGERS),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_with_the_reason(
    target: Membership, reason: RefusalReason
) -> None:
    member = leader(members(1, 2, 3))
    learn(member, 4)
    change(member, target)
    assert member.settled == [Refused(Token(1), ME, reason)]
    assert member.writes == []


def test_no_change_leaves_a_majority_of_voters_that_have_never_heard_of_their_membership() -> None:
    """One of them may open its log only now, with nothing in it, and gives no vote while nobody leads."""
    member = leader(members(1, 2, 3))
    change(member, members(1, 2, 3, learners=[4]))
    at = member.core.last.index
    member.acknowledge(TWO, at)
    member.acknowledge(FOUR, at)
    change(member, members(1, 3), token=2)
    assert member.settled[-1] == Refused(Token(2), ME, RefusalReason.STRANGERS)
    change(member, members(1, 3, 4), token=3)  # two of three know
    assert not isinstance(member.settled[-1], Refused) or member.settled[-1].token != Token(3)
    assert written(member)[-1] == members(1, 3, 4, outgoing=[1, 2, 3])


def test_no_change_counts_on_a_voter_that_has_not_replied_to_this_leader() -> None:
    """It may rejoin: with it as one of two voters, nobody could win once the leader is gone."""
    member = MemberUnderTest()
    member.become_leader(caught_up=False)
    change(member, members(1, 2))
    assert member.settled[-1] == Refused(Token(1), ME, RefusalReason.STRANGERS)
    member.hear(TWO, HeartbeatReply(term=member.core.term, round=0))
    change(member, members(1, 2), token=2)
    assert written(member)[-1] == members(1, 2, outgoing=[1, 2, 3])


def test_a_learner_becomes_a_voter_only_when_it_knows_that_it_is_a_member() -> None:
    member = leader(members(1, 2, 3))
    change(member, members(1, 2, 3, learners=[4]))
    member.acknowledge(TWO, 1)
    member.acknowledge(FOUR, 0)
    change(member, members(1, 2, 3, 4), token=2)
    assert member.settled[-1] == Refused(Token(2), ME, RefusalReason.STRANGERS)
    member.feed(Propose(Token(3), 100))  # that it lacks these is the planner's business
    member.acknowledge(FOUR, 1)
    change(member, members(1, 2, 3, 4), token=4)
    assert isinstance(member.settled[-1], Appended)


def test_a_learner_whose_connection_broke_becomes_a_voter_only_when_it_has_acknowledged_again() -> None:
    """Its broker may have come back with an empty disk."""
    member = leader(members(1, 2, 3))
    change(member, members(1, 2, 3, learners=[4]))
    member.acknowledge(TWO, 1)
    member.acknowledge(FOUR, 1)
    member.feed(PeerUnreachable(FOUR))
    change(member, members(1, 2, 3, 4), token=2)
    assert member.settled[-1] == Refused(Token(2), ME, RefusalReason.STRANGERS)
    member.acknowledge(FOUR, 1)
    change(member, members(1, 2, 3, 4), token=3)
    assert isinstance(member.settled[-1], Appended)


def test_others_than_the_leader_refuse_a_change_with_its_name_and_so_does_one_that_hands_over() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    change(member, members(1, 2))
    assert member.settled == [Refused(Token(1), TWO)]
    member = leader(members(1, 2, 3))
    member.feed(TransferLeadership(TWO))
    change(member, members(1, 2))
    assert member.settled == [Refused(Token(1), None, RefusalReason.TRANSFERRING)]


# 4.2.2 Removing the leader, 4.2.3 disruptive servers


def removed_leader() -> MemberUnderTest:
    """Its removal is in the log of all, but not committed."""
    member = leader(members(1, 2, 3))
    change(member, members(2, 3))
    for peer in (TWO, THREE):
        member.acknowledge(peer, 1)
    assert written(member)[-1] == members(2, 3)
    member.forget()
    return member


def test_a_leader_that_is_removed_leads_until_that_is_committed_and_does_not_count_itself_thesis_4_2_2() -> (
    None
):
    member = removed_leader()
    member.feed(Propose(Token(9), 1))
    assert isinstance(member.settled[-1], Appended)
    member.acknowledge(TWO, 3)
    assert (member.core.role, member.core.commit_index) == (Role.LEADER, 1)
    member.acknowledge(THREE, 3)
    assert (member.core.role, member.core.commit_index) == (Role.FOLLOWER, 3)


def test_a_leader_that_steps_down_asks_the_best_voter_to_stand_up_thesis_4_2_2() -> None:
    member = removed_leader()
    member.feed(Propose(Token(9), 1))
    member.acknowledge(THREE, 3)
    member.acknowledge(TWO, 2)
    assert member.core.role is Role.FOLLOWER
    assert member.said(TimeoutNow, THREE) == [
        TimeoutNow(term=Term(2), commit_index=Index(2), commit_term=Term(2))
    ]
    member.tick(9 * ELECTION_TICKS)
    assert member.core.role is Role.FOLLOWER


def test_who_alone_may_hold_its_own_removal_still_stands_for_election_thesis_4_2_2() -> None:
    member = MemberUnderTest(
        membership=members(2, outgoing=[1]),
        term=1,
        runs=[(1, 3)],
        commit=0,
        memberships=[MembershipEntry(Index(1), members(2))],
    )
    member.tick(2 * ELECTION_TICKS)
    assert member.core.role is Role.PRE_CANDIDATE
    member.hear(TWO, VoteReply(term=Term(1), asked=Term(2), granted=True, is_pre_vote=True))
    member.hear(TWO, VoteReply(term=Term(2), asked=Term(2), granted=True))
    assert member.core.role is Role.LEADER
    member.acknowledge(TWO, 3)
    assert (member.core.role, member.core.commit_index) == (Role.FOLLOWER, 3)
    member.tick(9 * ELECTION_TICKS)
    assert member.core.role is Role.FOLLOWER


def test_a_member_that_was_removed_gets_the_entry_that_says_so_and_then_nothing_more() -> None:
    member = leader(members(1, 2, 3))
    change(member, members(1, 2))
    for peer in (TWO, THREE):
        member.acknowledge(peer, 1)
    member.acknowledge(TWO, 2)
    assert [(order.first, order.last) for order in member.replicated if order.to == THREE][-1] == (2, 2)
    member.acknowledge(THREE, 2)
    member.tick(3)
    assert member.said(Heartbeat, THREE)[-1].commit_index == 2
    member.forget()
    member.feed(Propose(Token(9), 1))
    member.tick(3)
    assert {request.to for request in member.replicated} == {TWO}
    assert {to for to, _ in member.sent} == {TWO}


def test_a_removed_member_that_is_silent_is_given_up_after_an_election_timeout() -> None:
    member = leader(members(1, 2, 3))
    change(member, members(1, 2))
    for _ in range(ELECTION_TICKS + 3):
        member.acknowledge(TWO, member.core.last.index)
        member.tick()
    member.forget()
    member.feed(Propose(Token(9), 1))
    assert {request.to for request in member.replicated} == {TWO}


def test_a_removed_member_that_does_not_know_disturbs_nobody_thesis_4_2_3() -> None:
    member = MemberUnderTest(membership=members(1, 2, 4))
    member.follow(TWO)
    member.hear(
        THREE,
        VoteRequest(term=Term(2), last=entry(1, 9), is_pre_vote=True),
        VoteRequest(term=Term(9), last=entry(1, 9)),
    )
    assert [vote.granted for vote in member.said(VoteReply)] == [False]
    assert (member.core.term, member.core.leader) == (1, TWO)


def test_a_group_of_one_grows_and_shrinks() -> None:
    # requirement: F3
    member = MemberUnderTest(voters=1)
    member.feed(Campaign())
    change(member, members(1, learners=[2]))
    assert member.core.commit_index == 0
    member.acknowledge(TWO, 0)
    change(member, members(1, 2), token=2)
    assert member.core.commit_index == 0
    member.acknowledge(TWO, 1)
    member.acknowledge(TWO, 2)
    assert (member.core.commit_index, member.core.membership) == (2, members(1, 2))
    change(member, members(1), token=3)
    member.acknowledge(TWO, 3)
    assert (member.core.commit_index, member.core.membership) == (4, members(1))
    assert member.said(AppendRequest) == []
