"""The rules of "In Search of an Understandable Consensus Algorithm" on terms and elections, one test each.

Section numbers are the paper's; "thesis" is Ongaro's.
"""

import random

import pytest

from raftlog.core.inputs import Campaign, ConfirmRead, PeerUnreachable, Propose, TransferLeadership
from raftlog.core.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.core.ready import RefusalReason, Refused, Role
from raftlog.types import BEFORE_LOG, Index, NodeId, Term, Token
from tests.helpers.raft_member import (
    ELECTION_TICKS,
    ME,
    THREE,
    TWO,
    MemberUnderTest,
    append,
    entry,
    span,
)


def request(term: int, last_term: int = 0, last_index: int = -1, **flags: bool) -> VoteRequest:
    return VoteRequest(term=Term(term), last=entry(last_term, last_index), **flags)


# 5.1 Terms


@pytest.mark.parametrize(
    "message",
    [
        request(5),
        VoteReply(term=Term(5), asked=Term(5), granted=False),
        VoteReply(term=Term(5), asked=Term(5), granted=False, is_pre_vote=True),
        append(5, BEFORE_LOG),
        AppendReply(term=Term(5), accepted=False, match_index=Index(-1)),
        Heartbeat(term=Term(5), commit_index=Index(-1), round=1),
        HeartbeatReply(term=Term(5), round=1),
        TimeoutNow(term=Term(5)),
    ],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE])
def test_a_later_term_is_entered_and_makes_a_follower_5_1(message: Message, role: Role) -> None:
    member = MemberUnderTest(term=2)
    if role is Role.PRE_CANDIDATE:
        member.feed(Campaign())
    elif role is Role.CANDIDATE:
        member.become_candidate()
    assert member.core.role is role
    member.hear(TWO, message)
    assert member.core.term == 5
    assert member.core.role is Role.FOLLOWER
    assert member.writes[-1].hard_state is not None
    assert member.writes[-1].hard_state.term == 5


def test_a_leader_that_meets_a_later_term_steps_down_5_1() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.hear(TWO, HeartbeatReply(term=Term(9), round=0))
    assert (member.core.role, member.core.term) == (Role.FOLLOWER, 9)


def test_a_request_of_an_earlier_term_is_rejected_with_ours_5_1() -> None:
    member = MemberUnderTest(term=7, runs=[(7, 3)])
    member.hear(
        TWO, append(6, entry(7, 2)), request(6, 9, 9), Heartbeat(term=Term(6), commit_index=Index(2), round=4)
    )
    assert [message.term for _, message in member.sent] == [7, 7, 7]
    assert not any(
        getattr(message, "accepted", False) or getattr(message, "granted", False)
        for _, message in member.sent
    )
    assert member.core.commit_index == -1
    assert member.core.leader is None


def test_term_and_vote_are_durable_before_anything_is_promised_5_1() -> None:
    # requirement: P5
    member = MemberUnderTest(slow_disk=True)
    member.hear(TWO, request(3))
    assert member.said(VoteReply) == []
    member.finish()
    assert member.said(VoteReply) == [VoteReply(term=Term(3), asked=Term(3), granted=True)]


# 5.2 Elections


def test_a_member_starts_as_a_follower_5_2() -> None:
    assert MemberUnderTest(term=4).core.role is Role.FOLLOWER


def test_a_follower_that_hears_nothing_stands_for_election_within_two_timeouts_5_2() -> None:
    for seed in range(20):
        member = MemberUnderTest(seed=seed)
        member.tick(ELECTION_TICKS)
        assert member.core.role is Role.FOLLOWER
        member.tick(ELECTION_TICKS)
        assert member.core.role is Role.PRE_CANDIDATE


def test_election_timeouts_are_spread_over_the_whole_range_5_2() -> None:
    timeouts = {member_timeout(seed) for seed in range(200)}
    assert timeouts == set(range(ELECTION_TICKS + 1, 2 * ELECTION_TICKS + 1))


def member_timeout(seed: int) -> int:
    member = MemberUnderTest(seed=seed)
    for ticks in range(1, 100):
        member.tick()
        if member.core.role is not Role.FOLLOWER:
            return ticks
    raise AssertionError("never stood for election")


def test_a_follower_that_hears_its_leader_never_stands_for_election_5_2() -> None:
    member = MemberUnderTest()
    for heartbeat_round in range(1, 100):
        member.follow(round=heartbeat_round)
        member.tick(ELECTION_TICKS - 1)
        assert member.core.role is Role.FOLLOWER


def test_a_candidate_raises_its_term_votes_for_itself_and_asks_all_5_2() -> None:
    member = MemberUnderTest(term=2, runs=[(1, 2)])
    member.become_candidate()
    assert member.core.term == 3
    hard_state = member.writes[-1].hard_state
    assert hard_state is not None
    assert hard_state.voted_for == ME
    asked = [message for message in member.said(VoteRequest) if not message.is_pre_vote]
    assert asked == [request(3, 1, 1)] * 2


def test_a_candidate_asks_only_once_its_own_vote_is_durable_5_2() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.become_candidate()
    assert [message for message in member.said(VoteRequest) if not message.is_pre_vote] == []
    member.hear(TWO, VoteReply(term=Term(1), asked=Term(1), granted=True))
    assert member.core.role is Role.CANDIDATE
    member.finish()
    assert member.core.role is Role.LEADER


@pytest.mark.parametrize(("voters", "needed"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (7, 3)])
def test_a_candidate_wins_with_a_majority_5_2(voters: int, needed: int) -> None:
    member = MemberUnderTest(voters=voters)
    member.feed(Campaign())
    for peer in range(2, needed + 2):
        assert member.core.role is Role.PRE_CANDIDATE
        member.hear(NodeId(peer), VoteReply(term=Term(0), asked=Term(1), granted=True, is_pre_vote=True))
    for peer in range(2, needed + 2):
        assert member.core.role is Role.CANDIDATE
        member.hear(NodeId(peer), VoteReply(term=Term(1), asked=Term(1), granted=True))
        member.hear(NodeId(peer), VoteReply(term=Term(1), asked=Term(1), granted=True))
    assert member.core.role is Role.LEADER


def test_a_voter_gives_one_vote_in_a_term_first_come_first_served_5_2() -> None:
    member = MemberUnderTest()
    member.hear(TWO, request(1))
    member.hear(THREE, request(1))
    member.hear(TWO, request(1))
    assert [message.granted for message in member.said(VoteReply)] == [True, False, True]


def test_a_voter_remembers_its_vote_after_a_restart_5_2() -> None:
    member = MemberUnderTest(term=4, voted_for=2)
    member.hear(THREE, request(4, 9, 9))
    member.hear(TWO, request(4))
    assert [message.granted for message in member.said(VoteReply)] == [False, True]


def test_a_candidate_follows_a_leader_of_its_term_5_2() -> None:
    member = MemberUnderTest()
    member.become_candidate()
    member.hear(TWO, append(1, BEFORE_LOG))
    assert (member.core.role, member.core.leader, member.core.term) == (Role.FOLLOWER, TWO, 1)


def test_a_candidate_without_a_majority_begins_anew_5_2() -> None:
    member = MemberUnderTest()
    member.become_candidate()
    member.tick(2 * ELECTION_TICKS)
    assert member.core.role is Role.PRE_CANDIDATE
    member.hear(TWO, VoteReply(term=Term(1), asked=Term(2), granted=True, is_pre_vote=True))
    assert (member.core.role, member.core.term) == (Role.CANDIDATE, 2)


def test_votes_of_strangers_and_of_other_elections_do_not_count_5_2() -> None:
    member = MemberUnderTest()
    member.become_candidate()
    member.hear(NodeId(9), VoteReply(term=Term(1), asked=Term(1), granted=True))
    member.hear(
        TWO,
        VoteReply(term=Term(0), asked=Term(0), granted=True),
        VoteReply(term=Term(1), asked=Term(2), granted=True, is_pre_vote=True),
    )
    assert (member.core.role, member.core.term) == (Role.CANDIDATE, 1)


def test_a_vote_goes_also_to_a_candidate_that_our_membership_does_not_name_thesis_4_1() -> None:
    member = MemberUnderTest()
    member.hear(NodeId(9), request(7, 9, 9, is_pre_vote=True), request(7, 9, 9))
    assert [vote.granted for vote in member.said(VoteReply, NodeId(9))] == [True, True]


# 5.4.1 Election restriction


@pytest.mark.parametrize(
    ("last_term", "last_index", "granted"),
    [(3, 0, True), (2, 4, True), (2, 5, True), (2, 3, False), (1, 9, False)],
)
@pytest.mark.parametrize("asked", [{}, {"is_pre_vote": True}, {"is_transfer": True}], ids=str)
def test_only_a_log_as_new_as_ours_gets_our_vote_5_4_1(
    last_term: int, last_index: int, granted: bool, asked: dict[str, bool]
) -> None:
    """Also where the leader itself has called for it: its call may have been on the way for long."""
    member = MemberUnderTest(term=3, runs=[(1, 2), (2, 3)])
    member.hear(TWO, request(4, last_term, last_index, **asked))
    assert [message.granted for message in member.said(VoteReply)] == [granted]


# Thesis 9.6 Pre-vote, 4.2.3 stickiness, 6.2 check-quorum, 3.10 transfer


def test_a_pre_vote_changes_nothing_anywhere_thesis_9_6() -> None:
    candidate, voter = MemberUnderTest(term=2), MemberUnderTest(term=2)
    candidate.feed(Campaign())
    voter.hear(TWO, *candidate.said(VoteRequest, TWO))
    assert voter.said(VoteReply) == [VoteReply(term=Term(2), asked=Term(3), granted=True, is_pre_vote=True)]
    assert (candidate.core.term, voter.core.term, candidate.writes, voter.writes) == (2, 2, [], [])


def test_a_refused_pre_candidate_goes_on_following_thesis_9_6() -> None:
    member = MemberUnderTest()
    member.feed(Campaign())
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(0), asked=Term(1), granted=False, is_pre_vote=True))
    assert (member.core.role, member.core.term) == (Role.FOLLOWER, 0)


@pytest.mark.parametrize("is_pre_vote", [False, True])
def test_a_voter_that_hears_a_leader_refuses_others_thesis_4_2_3(is_pre_vote: bool) -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    member.tick(ELECTION_TICKS - 1)
    member.hear(THREE, request(2, 9, 9, is_pre_vote=is_pre_vote))
    assert not any(message.granted for message in member.said(VoteReply))
    assert (member.core.term, member.core.leader) == (1, TWO)
    member.tick()
    member.hear(THREE, request(2, 9, 9, is_pre_vote=is_pre_vote))
    assert member.said(VoteReply)[-1].granted


def test_a_leader_is_not_unseated_by_a_mere_candidate_thesis_4_2_3() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.hear(THREE, request(2, 9, 9), request(2, 9, 9, is_pre_vote=True))
    assert (member.core.role, member.core.term) == (Role.LEADER, 1)


def test_a_vote_that_the_leader_asked_for_overrides_stickiness_thesis_3_10() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    member.hear(THREE, request(2, 9, 9, is_transfer=True))
    assert member.said(VoteReply) == [VoteReply(term=Term(2), asked=Term(2), granted=True)]


def test_a_leader_without_quorum_steps_down_thesis_6_2() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for heartbeat_round in range(1, 10):
        member.tick(ELECTION_TICKS - 1)
        member.hear(TWO, HeartbeatReply(term=Term(1), round=heartbeat_round))
        assert member.core.role is Role.LEADER
    member.tick(ELECTION_TICKS)
    assert (member.core.role, member.core.term, member.core.leader) == (Role.FOLLOWER, 1, None)


def test_the_loss_of_a_connection_is_not_an_answer_of_the_peer() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for _ in range(ELECTION_TICKS):
        assert member.core.role is Role.LEADER
        member.tick()
        member.feed(PeerUnreachable(TWO), PeerUnreachable(THREE))
    assert member.core.role is Role.FOLLOWER


def test_a_follower_whose_leader_is_gone_stands_for_election_soon() -> None:
    for seed in range(50):
        member = MemberUnderTest(seed=seed)
        member.follow(TWO)
        member.feed(PeerUnreachable(THREE))
        member.tick(ELECTION_TICKS // 3)
        assert member.core.role is Role.FOLLOWER
        member.feed(PeerUnreachable(TWO))
        member.tick(ELECTION_TICKS // 3)
        assert member.core.role is Role.PRE_CANDIDATE


def test_a_leader_that_was_only_thought_gone_is_followed_again() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    member.feed(PeerUnreachable(TWO))
    member.follow(TWO, round=2)
    member.tick(ELECTION_TICKS)
    assert (member.core.role, member.core.leader) == (Role.FOLLOWER, TWO)


def test_timeout_now_starts_an_election_without_pre_vote_thesis_3_10() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    member.hear(THREE, TimeoutNow(term=Term(1)))
    assert member.core.role is Role.FOLLOWER
    member.hear(TWO, TimeoutNow(term=Term(1)))
    assert member.core.role is Role.CANDIDATE
    assert member.said(VoteRequest) == [request(2, is_transfer=True)] * 2


def test_no_proposals_while_leadership_is_handed_over_thesis_3_10() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(TransferLeadership(TWO))
    assert member.said(TimeoutNow, TWO) == [TimeoutNow(term=Term(1))]
    member.feed(Propose(Token(7), 1))
    assert member.settled == [Refused(Token(7), None, RefusalReason.TRANSFERRING)]
    for _ in range(ELECTION_TICKS):
        member.tick()
        member.hear(TWO, HeartbeatReply(term=Term(1), round=0))
    member.feed(Propose(Token(8), 1))
    assert member.core.last.index == 0


def test_a_transfer_ends_when_its_target_cannot_be_reached_thesis_3_10() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 4), TransferLeadership(THREE), PeerUnreachable(THREE))
    member.acknowledge(TWO, 3)
    member.acknowledge(THREE, 3)
    assert member.said(TimeoutNow) == []
    member.feed(Propose(Token(2), 1))
    assert member.core.last.index == 4


def test_leadership_is_handed_over_only_to_a_full_log_thesis_3_10() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 4), TransferLeadership(THREE))
    assert member.said(TimeoutNow) == []
    member.acknowledge(TWO, 3)
    assert member.said(TimeoutNow) == []
    member.acknowledge(THREE, 3)
    assert member.said(TimeoutNow, THREE) == [
        TimeoutNow(term=Term(1), commit_index=Index(3), commit_term=Term(1))
    ]


def test_a_successor_that_was_told_what_is_committed_appends_nothing_of_its_own() -> None:
    for commit_index, commit_term, appended in ((-1, 0, 1), (3, 1, 0), (3, 2, 1)):
        member = MemberUnderTest()
        member.follow(TWO)
        member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 3)))
        member.hear(
            TWO, TimeoutNow(term=Term(1), commit_index=Index(commit_index), commit_term=Term(commit_term))
        )
        member.hear(THREE, VoteReply(term=Term(2), asked=Term(2), granted=True))
        assert member.core.role is Role.LEADER
        assert member.core.last.index == 3 + appended


def test_requests_to_others_than_the_leader_are_refused_with_its_name_8() -> None:
    member = MemberUnderTest()
    member.feed(Propose(Token(1), 1), ConfirmRead(Token(2)))
    member.follow(THREE)
    member.feed(Propose(Token(3), 1), ConfirmRead(Token(4)))
    assert member.settled == [
        Refused(Token(1), None),
        Refused(Token(2), None),
        Refused(Token(3), THREE),
        Refused(Token(4), THREE),
    ]


def test_equal_seeds_and_inputs_give_equal_outputs() -> None:
    def life(seed: int) -> list[tuple[NodeId, Message]]:
        member = MemberUnderTest(seed=seed)
        rng = random.Random(5)
        for _ in range(300):
            member.tick(rng.randrange(8))
            member.feed(rng.choice([PeerUnreachable(TWO), Campaign(), Propose(Token(1), 2)]))
            member.hear(
                TWO,
                VoteReply(
                    term=member.core.term, asked=Term(member.core.term + 1), granted=True, is_pre_vote=True
                ),
            )
            member.hear(TWO, VoteReply(term=member.core.term, asked=member.core.term, granted=True))
        return member.sent

    assert life(3) == life(3)
    assert life(3) != life(4)
