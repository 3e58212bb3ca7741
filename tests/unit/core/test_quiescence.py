"""An idle group costs nothing: when members become quiescent, and what unquiesces them."""

import pytest

from raftlog.core.inputs import (
    Campaign,
    ConfirmRead,
    Input,
    PeerReachable,
    PeerUnreachable,
    Propose,
    Receive,
    Tick,
    TransferLeadership,
)
from raftlog.core.messages import Heartbeat, HeartbeatReply, TimeoutNow, VoteReply, VoteRequest
from raftlog.core.ready import ReadConfirmed, Refused, Role
from raftlog.types import BEFORE_LOG, Index, Term, Token
from tests.helpers.raft_member import ELECTION_TICKS, THREE, TWO, MemberUnderTest, append, members, span

QUIESCE_TICKS = 60


def echo(member: MemberUnderTest, *peers: int) -> None:
    """Let the peers answer the newest heartbeat."""
    for peer in (TWO, THREE):
        beats = member.said(Heartbeat, peer)
        if beats and peer not in peers:
            member.hear(peer, HeartbeatReply(term=member.core.term, round=beats[-1].round))


def quiet(member: MemberUnderTest, ticks: int, *silent: int) -> None:
    for _ in range(ticks):
        if not member.core.is_quiescent:
            member.tick()
            if not member.core.is_quiescent:
                echo(member, *silent)


def quiescent_leader() -> MemberUnderTest:
    member = MemberUnderTest()
    member.become_leader()
    quiet(member, 2 * QUIESCE_TICKS)
    assert member.core.is_quiescent
    return member


def quiescent_follower() -> MemberUnderTest:
    member = MemberUnderTest()
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 2), commit=2))
    member.hear(TWO, Heartbeat(term=Term(1), commit_index=Index(2), round=7, quiesces=True))
    assert member.core.is_quiescent
    return member


def test_a_leader_with_nothing_to_do_quiesces_and_says_so() -> None:
    member = quiescent_leader()
    assert [beat.quiesces for beat in member.said(Heartbeat)[-4:]] == [False, False, True, True]


def test_a_leader_stays_active_while_a_peer_has_not_heard_that_all_is_committed() -> None:
    member = MemberUnderTest()
    member.become_leader()
    quiet(member, 5 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent
    quiet(member, 6)
    assert member.core.is_quiescent


def test_a_leader_stays_active_while_an_entry_is_not_committed() -> None:
    """No quorum has room for it, and its followers have all that is committed."""
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 1))
    quiet(member, 3 * QUIESCE_TICKS)
    assert not member.core.is_quiescent
    member.acknowledge(TWO, 0)
    member.acknowledge(THREE, 0)
    quiet(member, 2 * QUIESCE_TICKS)
    assert member.core.is_quiescent


def test_a_leader_stays_active_while_a_peer_lacks_an_entry() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    quiet(member, 3 * QUIESCE_TICKS)
    assert not member.core.is_quiescent
    member.acknowledge(THREE, 0)
    quiet(member, 2 * QUIESCE_TICKS)
    assert member.core.is_quiescent


def test_a_leader_stays_active_while_a_peer_does_not_answer_since_its_last_entry() -> None:
    member = MemberUnderTest()
    member.become_leader()
    quiet(member, QUIESCE_TICKS // 2)
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    member.acknowledge(THREE, 0)
    quiet(member, 5 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent
    quiet(member, 6)
    assert member.core.is_quiescent


def leader_without_three() -> MemberUnderTest:
    """Quiescent, with an entry that member THREE lacks."""
    member = MemberUnderTest()
    member.become_leader()
    member.feed(PeerUnreachable(THREE), Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert member.core.is_quiescent
    return member


def test_a_leader_quiesces_without_a_minority_whose_nodes_are_unreachable() -> None:
    member = leader_without_three()
    assert [beat.quiesces for beat in member.said(Heartbeat, TWO)[-2:]] == [False, True]


def test_a_leader_without_a_reachable_quorum_stays_active() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(PeerUnreachable(THREE), PeerUnreachable(TWO))
    quiet(member, 2 * QUIESCE_TICKS, TWO, THREE)
    assert not member.core.is_quiescent
    assert member.core.role is not Role.LEADER


def test_a_leader_is_active_from_when_a_peer_is_reachable_again_until_it_has_everything() -> None:
    member = leader_without_three()
    member.feed(PeerReachable(THREE))
    assert not member.core.is_quiescent
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent
    quiet(member, 3)
    member.acknowledge(THREE, 0)
    quiet(member, 2 * QUIESCE_TICKS)
    assert member.core.is_quiescent


def test_a_leader_that_is_told_again_of_an_unreachable_peer_stays_quiescent() -> None:
    member = leader_without_three()
    member.feed(PeerUnreachable(THREE))
    assert member.core.is_quiescent
    member.feed(PeerUnreachable(TWO))
    assert not member.core.is_quiescent


def test_a_quiescent_leader_that_loses_its_quorum_steps_down() -> None:
    member = leader_without_three()
    member.feed(PeerUnreachable(TWO))
    member.tick(ELECTION_TICKS)
    assert member.core.role is Role.FOLLOWER


def test_a_leader_quiesces_without_an_unreachable_peer_that_was_rejoining() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    member.hear(THREE, HeartbeatReply(term=member.core.term, round=0, rejoining=7))
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent
    member.feed(PeerUnreachable(THREE))
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert member.core.is_quiescent
    member.feed(PeerReachable(THREE))
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent


def test_a_deposed_leader_that_slept_confirms_no_read() -> None:
    """The others have elected another leader; it hears of that as soon as it asks them."""
    member = leader_without_three()
    member.feed(ConfirmRead(Token(5)))
    member.hear(TWO, HeartbeatReply(term=Term(9), round=0))
    assert member.core.role is Role.FOLLOWER
    assert [type(answer) for answer in member.settled if answer.token == Token(5)] == [Refused]


def test_echoes_of_rounds_before_a_leader_slept_confirm_no_read() -> None:
    member = leader_without_three()
    slept_at = member.said(Heartbeat, TWO)[-1].round
    member.feed(ConfirmRead(Token(5)))
    member.hear(TWO, HeartbeatReply(term=member.core.term, round=slept_at))
    assert not any(answer.token == Token(5) for answer in member.settled)
    member.hear(TWO, HeartbeatReply(term=member.core.term, round=slept_at + 1))
    assert [type(answer) for answer in member.settled if answer.token == Token(5)] == [ReadConfirmed]


def test_a_leader_that_slept_makes_no_unreachable_peer_its_successor() -> None:
    member = leader_without_three()
    member.feed(TransferLeadership(THREE))
    member.tick(ELECTION_TICKS - 1)
    assert member.said(TimeoutNow) == []


def test_a_message_of_a_peer_says_that_it_is_reachable() -> None:
    member = leader_without_three()
    member.hear(THREE, HeartbeatReply(term=Term(1), round=1))
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert not member.core.is_quiescent


def test_a_new_leader_knows_who_is_unreachable() -> None:
    member = MemberUnderTest()
    member.become_candidate()
    member.feed(PeerUnreachable(THREE))
    member.hear(TWO, VoteReply(term=member.core.term, asked=member.core.term, granted=True))
    member.acknowledge(TWO, -1)
    quiet(member, 2 * QUIESCE_TICKS, THREE)
    assert member.core.is_quiescent


def test_a_quiescent_follower_that_hears_a_candidate_reminds_the_leader() -> None:
    member = quiescent_follower()
    member.hear(THREE, VoteRequest(term=Term(9), last=BEFORE_LOG, is_pre_vote=True))
    assert [to for to, message in member.sent if isinstance(message, HeartbeatReply)] == [TWO]


def test_a_peer_that_was_reachable_all_the_time_unquiesces_nobody() -> None:
    for member in (quiescent_leader(), quiescent_follower()):
        member.feed(PeerReachable(THREE))
        assert member.core.is_quiescent


@pytest.mark.parametrize(
    "event",
    [
        Propose(Token(1), 1),
        ConfirmRead(Token(1)),
        PeerUnreachable(TWO),
        Receive(TWO, VoteRequest(term=Term(9), last=BEFORE_LOG, is_pre_vote=True)),
        Receive(TWO, HeartbeatReply(term=Term(1), round=0, rejoining=7)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_leader_wakes_and_beats_with_the_next_tick(event: Input) -> None:
    member = quiescent_leader()
    member.forget()
    member.feed(event)
    assert not member.core.is_quiescent
    member.tick()
    assert {to for to, message in member.sent if isinstance(message, Heartbeat)} == {TWO, THREE}
    assert not any(beat.quiesces for beat in member.said(Heartbeat))


def test_a_leader_that_wakes_gives_its_quorum_a_whole_timeout() -> None:
    member = quiescent_leader()
    member.feed(Propose(Token(1), 1))
    member.tick(ELECTION_TICKS - 1)
    assert member.core.role is Role.LEADER
    member.tick()
    assert member.core.role is Role.FOLLOWER


def test_late_echoes_of_earlier_rounds_do_not_unquiesce_a_leader() -> None:
    """Else no group becomes quiescent where a message takes longer than a heartbeat interval."""
    member = quiescent_leader()
    last = member.said(Heartbeat)[-1].round
    for late in range(1, last):
        member.hear(TWO, HeartbeatReply(term=Term(1), round=late))
    assert member.core.is_quiescent


@pytest.mark.parametrize(
    ("rounds_ago", "term", "rejoining"),
    [(0, 1, 0), (1, 2, 0), (1, 1, 7)],
    ids=["disagrees", "term", "rejoins"],
)
def test_other_echoes_unquiesce_a_leader(rounds_ago: int, term: int, rejoining: int) -> None:
    member = quiescent_leader()
    last = member.said(Heartbeat)[-1].round
    member.hear(TWO, HeartbeatReply(term=Term(term), round=last - rounds_ago, rejoining=rejoining))
    assert not member.core.is_quiescent


def test_a_late_echo_of_an_unreachable_peer_unquiesces_its_leader() -> None:
    """The leader became quiescent without it: it may lack entries."""
    member = quiescent_leader()
    member.feed(PeerUnreachable(TWO))
    quiet(member, 2 * QUIESCE_TICKS, TWO)
    assert member.core.is_quiescent
    member.hear(TWO, HeartbeatReply(term=Term(1), round=1))
    assert not member.core.is_quiescent


# requirement: ST4
def test_a_reminder_of_a_learner_that_missed_the_last_round_unquiesces_its_leader() -> None:
    leader = MemberUnderTest(membership=members(1, 2, learners=(3,)))
    leader.become_leader()
    quiet(leader, 2 * QUIESCE_TICKS)
    last = leader.said(Heartbeat, THREE)[-1]
    assert leader.core.is_quiescent
    assert last.quiesces
    learner = MemberUnderTest(membership=members(2, 3, learners=(1,)))
    learner.follow(TWO, round=last.round - 1)
    learner.forget()
    learner.tick(2 * ELECTION_TICKS)
    (reminder,) = learner.said(HeartbeatReply)
    leader.hear(THREE, HeartbeatReply(term=leader.core.term, round=reminder.round))
    assert not leader.core.is_quiescent


def test_a_leader_unquiesced_by_nothing_becomes_quiescent_again() -> None:
    member = quiescent_leader()
    member.hear(TWO, HeartbeatReply(term=Term(1), round=member.said(Heartbeat)[-1].round))
    assert not member.core.is_quiescent
    quiet(member, 2 * QUIESCE_TICKS)
    assert member.core.is_quiescent


def test_a_follower_that_becomes_quiescent_does_not_answer() -> None:
    member = quiescent_follower()
    assert member.said(HeartbeatReply) == []


def test_a_follower_with_something_open_does_not_become_quiescent_and_answers() -> None:
    silent = Heartbeat(term=Term(1), commit_index=Index(2), round=7, quiesces=True)
    behind, in_flight, delayed = MemberUnderTest(), MemberUnderTest(slow_disk=True), MemberUnderTest()
    behind.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 1), commit=1))
    in_flight.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 2), commit=2))
    delayed.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 2), commit=2))
    delayed.follow(TWO, round=9)
    for member in (behind, in_flight, delayed):
        member.hear(TWO, silent)
        assert not member.core.is_quiescent
        assert member.said(HeartbeatReply)[-1].round == 7


def test_a_tick_and_the_loss_of_a_fellow_follower_unquiesce_nobody() -> None:
    member = quiescent_follower()
    member.feed(Tick(), PeerUnreachable(THREE))
    assert member.core.is_quiescent
    assert member.core.take_ready() is None


def test_a_follower_that_wakes_waits_a_whole_timeout() -> None:
    member = quiescent_follower()
    member.hear(THREE, VoteRequest(term=Term(9), last=BEFORE_LOG, is_pre_vote=True))
    member.tick(ELECTION_TICKS)
    assert member.core.role is Role.FOLLOWER
    member.tick(ELECTION_TICKS)
    assert member.core.role is Role.PRE_CANDIDATE


def test_a_sleeper_whose_leader_is_gone_stands_for_election_soon() -> None:
    member = quiescent_follower()
    member.feed(PeerUnreachable(TWO))
    assert not member.core.is_quiescent
    member.tick(ELECTION_TICKS // 3)
    assert member.core.role is Role.PRE_CANDIDATE


def test_a_sleeper_can_be_told_to_campaign() -> None:
    member = quiescent_follower()
    member.feed(Campaign())
    assert (member.core.role, member.core.is_quiescent) == (Role.PRE_CANDIDATE, False)
