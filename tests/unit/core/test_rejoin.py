"""A replica that may have forgotten votes and entries: what it must not do, and when that is over."""

from __future__ import annotations

import pytest

from raftlog.core.inputs import (
    Campaign,
    ChangeMembership,
    ConfirmRead,
    Propose,
    TransferLeadership,
    Unquiesce,
)
from raftlog.core.membership import NOBODY
from raftlog.core.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    RejoinResponse,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.core.ready import HardState, ReadConfirmed, Role
from raftlog.types import BEFORE_LOG, Index, NodeId, Term, Token
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

FOUR, FIVE = NodeId(4), NodeId(5)


def rejoining(**named: int) -> MemberUnderTest:
    """A member of 1, 2, 3 whose disk was replaced; 2 leads in term 4 and its log ends at 4/2."""
    member = MemberUnderTest(is_rejoining=True, **named)
    member.hear(TWO, append(4, BEFORE_LOG, span(4, 0, 2)))
    return member


def incarnation(member: MemberUnderTest) -> int:
    return member.said(AppendReply)[-1].rejoining


# requirement: F6
@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_it_gives_no_vote_though_its_log_names_it(is_pre_vote: bool) -> None:
    member = MemberUnderTest(is_rejoining=True, membership=NOBODY)
    named = members(1, 2, 3)
    member.hear(TWO, append(4, BEFORE_LOG, changed(4, 0, named), span(4, 1, 2)))
    assert member.core.membership == named
    member.tick(2 * ELECTION_TICKS)
    member.hear(THREE, VoteRequest(term=Term(5), last=entry(4, 9), is_pre_vote=is_pre_vote))
    assert [reply.granted for reply in member.said(VoteReply)] == [False]


# requirement: F6
def test_it_stands_for_no_election() -> None:
    member = rejoining()
    member.feed(Campaign())
    member.hear(TWO, TimeoutNow(term=Term(4)))
    member.tick(9 * ELECTION_TICKS)
    assert (member.core.role, member.core.term) == (Role.FOLLOWER, 4)


def test_every_reply_says_that_it_rejoins() -> None:
    member = rejoining()
    number = incarnation(member)
    assert number > 0
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(0), round=1))
    member.hear(TWO, append(4, entry(4, 7)))
    member.hear(THREE, Heartbeat(term=Term(3), commit_index=Index(0), round=7))
    member.hear(THREE, append(3, entry(3, 1)))
    member.hear(THREE, SnapshotOffer(term=Term(3), snapshot=entry(2, 5), membership=NOBODY))
    replies = [*member.said(AppendReply), *member.said(HeartbeatReply)]
    assert {reply.rejoining for reply in replies} == {number}


# requirement: F6
def test_it_votes_once_its_disk_holds_what_a_confirmed_leader_had() -> None:
    member = rejoining(seed=3)
    number = incarnation(member)
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=number + 1, last=Index(1)))  # to another one
    assert member.core.is_rejoining
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=number, last=Index(3)))
    assert member.core.is_rejoining
    member.hear(TWO, append(4, entry(4, 2), span(4, 3, 3)))
    assert not member.core.is_rejoining
    assert [write.hard_state for write in member.writes if write.hard_state][-1] == HardState(Term(4), TWO)
    assert member.said(AppendReply)[-1].rejoining == 0
    member.tick(2 * ELECTION_TICKS)
    member.hear(THREE, VoteRequest(term=Term(4), last=entry(4, 9)))  # its vote of this term may be given
    member.hear(THREE, VoteRequest(term=Term(5), last=entry(4, 9)))
    assert [reply.granted for reply in member.said(VoteReply) if not reply.is_pre_vote] == [False, True]


def test_nothing_counts_before_it_is_durable() -> None:
    member = MemberUnderTest(is_rejoining=True, slow_disk=True)
    member.hear(TWO, append(4, BEFORE_LOG, span(4, 0, 2)))
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(0), round=1))
    number = member.said(HeartbeatReply)[-1].rejoining
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=number, last=Index(2)))
    assert member.core.is_rejoining
    while member.unfinished:
        member.finish()
    assert not member.core.is_rejoining


def test_no_reply_says_that_it_rejoins_no_more_before_that_is_durable() -> None:
    """A leader that believed it could make it a voter that rejoins again after a crash."""
    member = MemberUnderTest(is_rejoining=True, slow_disk=True)
    member.hear(TWO, append(4, BEFORE_LOG, span(4, 0, 2)))
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(0), round=1))
    number = member.said(HeartbeatReply)[-1].rejoining
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=number, last=Index(2)))
    while member.core.is_rejoining:
        member.finish()
    assert member.unfinished, "its hard state is on its way"
    member.forget()
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(0), round=2))
    member.hear(TWO, append(4, entry(4, 7)))
    member.hear(THREE, Heartbeat(term=Term(3), commit_index=Index(0), round=7))
    member.hear(THREE, append(3, entry(3, 1)))
    replies = [*member.said(AppendReply), *member.said(HeartbeatReply)]
    assert [reply.rejoining for reply in replies] == [number] * 4
    while member.unfinished:
        member.finish()
    assert member.said(AppendReply)[-1].rejoining == 0
    member.hear(TWO, Heartbeat(term=Term(5), commit_index=Index(0), round=1))  # a hard state to save again
    assert member.said(HeartbeatReply)[-1].rejoining == 0


# requirement: F6
def test_a_leader_that_was_silent_need_not_send_its_log_again() -> None:
    """It knows that this log is equal, so in an idle group no append would come."""
    member = rejoining()
    number = incarnation(member)
    member.tick(3 * ELECTION_TICKS)
    assert member.core.leader is None
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(2), round=9))
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=number, last=Index(2)))
    assert not member.core.is_rejoining


# requirement: F6
def test_what_was_equal_to_an_earlier_leader_counts_no_more() -> None:
    member = rejoining()
    number = incarnation(member)
    member.hear(THREE, Heartbeat(term=Term(5), commit_index=Index(0), round=1))
    member.hear(THREE, RejoinResponse(term=Term(5), rejoining=number, last=Index(2)))
    assert member.core.is_rejoining
    member.hear(THREE, append(5, entry(4, 2)))
    assert not member.core.is_rejoining


def test_what_an_earlier_leader_said_counts_no_more() -> None:
    member = rejoining()
    member.hear(TWO, RejoinResponse(term=Term(4), rejoining=incarnation(member), last=Index(3)))
    member.hear(THREE, append(5, entry(4, 2), span(5, 3, 3)))
    assert member.core.is_rejoining


def leader(*, caught_up: bool = True, **named: int) -> MemberUnderTest:
    """Leads 1, 2, 3 in term 2; both others have its whole log, which ends at 2/3."""
    member = MemberUnderTest(term=1, runs=[(1, 3)], **named)
    member.become_leader(caught_up=caught_up)
    member.forget()
    return member


def echo(member: MemberUnderTest, peer: NodeId, rejoining: int = 0) -> None:
    """The peer answers the newest heartbeat."""
    newest = [beat for to, beat in member.sent if to == peer and isinstance(beat, Heartbeat)][-1]
    member.hear(peer, HeartbeatReply(term=newest.term, round=newest.round, rejoining=rejoining))


# requirement: F6
def test_a_leader_counts_no_acknowledgement_echo_or_sign_of_life_of_it() -> None:
    member = leader()
    before = member.core.commit_index
    member.feed(Propose(Token(1), 1), ConfirmRead(Token(2)))
    last = member.core.last.index
    member.hear(THREE, AppendReply(term=Term(2), accepted=True, match_index=last, rejoining=7))
    echo(member, THREE, rejoining=7)
    assert member.core.commit_index == before
    assert not any(isinstance(settled, ReadConfirmed) for settled in member.settled)
    assert THREE not in member.core.match_index
    for _ in range(2 * ELECTION_TICKS):
        member.tick()
        member.hear(THREE, HeartbeatReply(term=Term(2), round=999, rejoining=7))
    assert member.core.role is Role.FOLLOWER


# requirement: F6
def test_a_leader_answers_when_all_other_voters_have_confirmed_it_since() -> None:
    member = leader()
    member.tick(3)
    echo(member, TWO)
    echo(member, THREE, rejoining=7)
    assert member.said(RejoinResponse) == []  # the round that 2 has echoed is older than what 3 has said
    assert member.core.status().rejoining == {THREE: {TWO}}
    member.tick(3)
    echo(member, THREE, rejoining=7)
    assert member.said(RejoinResponse) == []
    echo(member, TWO)
    response = RejoinResponse(term=Term(2), rejoining=7, last=member.core.last.index)
    assert [item for item in member.sent if isinstance(item[1], RejoinResponse)] == [(THREE, response)]
    member.forget()
    member.feed(Propose(Token(1), 1))
    member.tick(3)
    echo(member, THREE, rejoining=7)
    assert member.said(RejoinResponse) == [response]  # said again, and not moved on
    echo(member, THREE, rejoining=8)
    assert member.said(RejoinResponse) == [response]  # the next incarnation needs its own


# requirement: F6
def test_late_replies_that_come_together_are_answered_once() -> None:
    member = leader()
    member.hear(THREE, HeartbeatReply(term=Term(2), round=0, rejoining=7))
    member.tick(3)
    echo(member, TWO)
    member.forget()
    for answers in (1, 2):
        member.tick(3)
        for _ in range(100):
            echo(member, THREE, rejoining=7)
        assert len(member.said(RejoinResponse)) == answers


# requirement: F6
def test_a_majority_is_not_enough_where_a_voter_may_still_win_with_a_forgotten_vote() -> None:
    member = MemberUnderTest(membership=members(1, 2, 3, 4, 5), term=1)
    member.become_candidate()
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(2), asked=Term(2), granted=True))
    member.hear(FIVE, HeartbeatReply(term=Term(2), round=0, rejoining=7))
    member.tick(3)
    for peer in (TWO, THREE):
        echo(member, peer)
    assert member.said(RejoinResponse) == []
    assert member.core.status().rejoining == {FIVE: {FOUR}}
    echo(member, FOUR)
    assert [to for to, said in member.sent if isinstance(said, RejoinResponse)] == [FIVE]


# requirement: F6
def test_a_voter_that_may_have_rejoined_unheard_confirms_again() -> None:
    """Its reply was lost, and it may be a candidate of a later term with a vote that is forgotten now."""
    member = MemberUnderTest(membership=members(1, 2, 3, 4, 5), term=1)
    member.become_candidate()
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(2), asked=Term(2), granted=True))
    member.hear(FIVE, HeartbeatReply(term=Term(2), round=0, rejoining=7))
    member.hear(FOUR, HeartbeatReply(term=Term(2), round=0, rejoining=8))
    member.tick(3)
    for peer in (TWO, THREE):
        echo(member, peer)
    echo(member, FOUR, rejoining=8)
    assert {to for to, said in member.sent if isinstance(said, RejoinResponse)} == {FOUR, FIVE}
    member.forget()
    member.hear(FOUR, HeartbeatReply(term=Term(2), round=0, rejoining=9))  # it has lost its disk again
    member.tick(3)
    for peer in (TWO, THREE):
        echo(member, peer)
    assert member.said(RejoinResponse, FOUR) == []
    assert member.core.status().rejoining[FOUR] == {FIVE}
    echo(member, FIVE, rejoining=7)
    assert [response.rejoining for response in member.said(RejoinResponse, FOUR)] == [9]


# requirement: F2
def test_a_learner_needs_a_majority_only() -> None:
    member = MemberUnderTest(membership=members(1, 2, 3, learners=[4]), term=1)
    member.become_leader()
    member.tick(3)
    member.hear(FOUR, HeartbeatReply(term=Term(2), round=0, rejoining=7))
    echo(member, TWO)  # a round that began before
    assert member.said(RejoinResponse) == []
    member.tick(3)
    echo(member, TWO)
    assert [to for to, said in member.sent if isinstance(said, RejoinResponse)] == [FOUR]


# requirement: F6
def test_a_round_from_before_the_first_sign_of_an_incarnation_confirms_nothing() -> None:
    """Whether that sign is an echo or the answer to an append."""
    member = leader()
    member.tick(3)
    last = member.core.last.index
    member.hear(THREE, AppendReply(term=Term(2), accepted=True, match_index=last, rejoining=7))
    echo(member, TWO)
    echo(member, THREE, rejoining=7)
    assert member.said(RejoinResponse) == []
    member.tick(3)
    echo(member, TWO)
    assert len(member.said(RejoinResponse)) == 1


def changing() -> MemberUnderTest:
    """Leads 1, 2, 3, which are about to be 1, 4, 5."""
    member = MemberUnderTest(membership=members(1, 2, 3, learners=[4, 5]), term=1)
    member.become_leader()
    member.feed(ChangeMembership(Token(1), members(1, 4, 5)))
    assert member.core.membership == members(1, 4, 5, outgoing=[1, 2, 3])
    return member


# requirement: F6
@pytest.mark.parametrize("lost", [2, 4])
def test_while_voters_change_all_of_both_halves_confirm(lost: int) -> None:
    """A vote that the lost incarnation has given may elect a leader in either half."""
    member = changing()
    member.hear(NodeId(lost), HeartbeatReply(term=Term(2), round=0, rejoining=7))
    member.tick(3)
    halves = [[node for node in half if node != lost] for half in ((5, 4), (3, 2))]
    first, last = [NodeId(half[0]) for half in halves], [NodeId(node) for half in halves for node in half[1:]]
    for peer in first:
        echo(member, peer)
    assert member.core.status().rejoining == {lost: frozenset(last)}
    assert member.said(RejoinResponse) == [], "a majority of both halves"
    for peer in last:
        echo(member, peer)
    assert [to for to, said in member.sent if isinstance(said, RejoinResponse)] == [lost]


# requirement: F6
def test_a_log_that_lost_what_it_had_acknowledged_is_brought_up_by_the_same_leader() -> None:
    member = leader()
    assert member.core.match_index[THREE] == member.core.last.index
    member.forget()
    member.hear(THREE, HeartbeatReply(term=Term(2), round=0, rejoining=7))
    probe = next(request for request in member.replicated if request.to == THREE)
    refusal = AppendReply(
        term=Term(2), accepted=False, match_index=probe.previous.index, hint=BEFORE_LOG, rejoining=7
    )
    member.hear(THREE, refusal)
    assert [request.first for request in member.replicated if request.to == THREE][-1] == 0


def test_a_log_that_was_repaired_and_is_shorter_is_brought_up_by_the_same_leader() -> None:
    member = leader()
    last = member.core.last.index
    member.feed(Propose(Token(1), 1))
    member.hear(THREE, AppendReply(term=Term(2), accepted=False, match_index=last, hint=entry(1, 1)))
    member.tick(6)
    echo(member, THREE)  # so the question is put again
    member.hear(
        THREE, AppendReply(term=Term(2), accepted=False, match_index=Index(last + 1), hint=entry(1, 1))
    )
    member.hear(THREE, AppendReply(term=Term(2), accepted=False, match_index=last, hint=entry(1, 1)))
    assert [request.previous for request in member.replicated if request.to == THREE][-1] == entry(1, 1)


def test_leadership_is_not_handed_to_it() -> None:
    member = leader()
    echo_before = member.core.last.index
    member.hear(THREE, AppendReply(term=Term(2), accepted=True, match_index=echo_before, rejoining=7))
    member.feed(TransferLeadership(THREE))
    assert member.said(TimeoutNow) == []


def test_a_group_does_not_become_quiescent_while_a_replica_rejoins() -> None:
    member = leader()
    for _ in range(200):
        member.tick()
        if member.said(Heartbeat, TWO):
            echo(member, TWO)
            echo(member, THREE, rejoining=7)
    assert not member.core.is_quiescent


# B: no reply speaks for another term


# requirement: RP4
def test_an_earlier_heartbeat_is_answered_without_its_round() -> None:
    member = MemberUnderTest(term=3)
    member.hear(TWO, Heartbeat(term=Term(2), commit_index=Index(-1), round=40))
    assert member.said(HeartbeatReply) == [HeartbeatReply(term=Term(3), round=0)]


# requirement: RP4
def test_a_refusal_of_an_earlier_term_does_not_end_this_candidacy() -> None:
    member = MemberUnderTest()
    member.become_candidate()
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(1), asked=Term(0), granted=False))
    assert member.core.role is Role.CANDIDATE
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(1), asked=Term(1), granted=False))
    assert member.core.role is Role.FOLLOWER


def test_a_request_wakes_a_group_whose_leader_is_gone_without_a_word() -> None:
    member = MemberUnderTest(term=2)
    beat = Heartbeat(term=Term(2), commit_index=Index(-1), round=1, quiesces=True)
    member.hear(TWO, beat)
    assert member.core.is_quiescent
    member.feed(Unquiesce())
    assert [to for to, said in member.sent if isinstance(said, HeartbeatReply)] == [TWO]
    member.tick(3 * ELECTION_TICKS)
    assert member.core.role is not Role.FOLLOWER
    assert ME in member.core.membership.voters


# requirement: F6
def test_it_commits_nothing_by_a_heartbeat_whose_leader_knew_a_longer_log() -> None:
    member = rejoining()
    member.hear(TWO, Heartbeat(term=Term(4), commit_index=Index(2), round=1))
    assert member.core.commit_index < 2


# requirement: F6
@pytest.mark.parametrize("commit_index", [3, 4, 9])
@pytest.mark.parametrize("kind", [Heartbeat, TimeoutNow])
def test_an_older_copy_that_does_not_know_it_commits_nothing_for_what_it_held(
    kind: type[Heartbeat | TimeoutNow], commit_index: int
) -> None:
    """Its leader goes by what the newer log held. The tail of the copy was never committed."""
    member = MemberUnderTest(term=2, runs=((1, 2), (2, 3)), commit=1)
    member.follow(TWO, term=4)
    committed = {"term": Term(4), "commit_index": Index(commit_index), "commit_term": Term(3)}
    member.hear(TWO, TimeoutNow(**committed) if kind is TimeoutNow else Heartbeat(**committed, round=2))
    assert member.core.commit_index == 1
    member.follow(TWO, term=member.core.term + 1)
    member.hear(TWO, append(member.core.term, entry(1, 1), span(3, 2, 9), commit=9))
    assert (member.core.last, member.core.commit_index) == (entry(3, 9), 9)


def test_a_sound_log_learns_from_heartbeats_what_is_committed() -> None:
    member = MemberUnderTest(term=2, runs=((1, 2), (2, 3)), commit=1)
    member.follow(TWO, term=4, commit_index=3, commit_term=2)
    assert member.core.commit_index == 3
