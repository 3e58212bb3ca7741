"""The rules of the Raft paper (7) on logs that begin with a snapshot, one test each."""

import pytest

from raftlog.core.inputs import Campaign, LogTruncatedPrefix, Propose, SnapshotInstalled, Tick
from raftlog.core.membership import MembershipEntry
from raftlog.core.messages import (
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    SnapshotOffer,
    VoteReply,
    VoteRequest,
)
from raftlog.core.ready import FetchSnapshot, Role
from raftlog.errors import InvariantViolated
from raftlog.types import BEFORE_LOG, EntryId, Index, Term, Token
from tests.helpers.raft_member import (
    ELECTION_TICKS,
    THREE,
    TWO,
    MemberUnderTest,
    append,
    entry,
    members,
    span,
)

SNAPSHOT = entry(1, 9)
FOUR_VOTERS = members(1, 2, 3, 4)


def offer(term: int = 2, snapshot: EntryId = SNAPSHOT) -> SnapshotOffer:
    return SnapshotOffer(term=Term(term), snapshot=snapshot, membership=FOUR_VOTERS)


def accepted(member: MemberUnderTest) -> list[int]:
    return [reply.match_index for reply in member.said(AppendReply) if reply.accepted]


def cut_leader() -> MemberUnderTest:
    """A leader of term 2 whose log begins after index 9; node 2 has all of it."""
    member = MemberUnderTest(snapshot=SNAPSHOT, term=1, runs=[(1, 5)], commit=14)
    member.become_leader(caught_up=False)
    member.acknowledge(TWO, 14)
    member.forget()
    return member


def refuse(member: MemberUnderTest, asked: int, hint: EntryId) -> None:
    """Node 3 does not hold what was asked for."""
    member.hear(
        THREE, AppendReply(term=member.core.term, accepted=False, match_index=Index(asked), hint=hint)
    )


def beat(member: MemberUnderTest, ticks: int) -> None:
    for _ in range(ticks):
        member.tick()
        for peer in (TWO, THREE):
            for heartbeat in member.said(Heartbeat, peer)[-1:]:
                member.hear(peer, HeartbeatReply(term=member.core.term, round=heartbeat.round))


# The follower


def test_a_follower_that_lacks_the_snapshot_fetches_it_7() -> None:
    # requirement: F1
    member = MemberUnderTest()
    member.hear(TWO, append(2, BEFORE_LOG, span(1, 0, 3)), offer())
    assert member.fetches == [FetchSnapshot(TWO, SNAPSHOT, FOUR_VOTERS)]
    assert accepted(member) == [3]
    assert member.core.last == entry(1, 3)


def test_a_repeated_offer_asks_for_the_snapshot_again_so_that_a_failed_transfer_begins_anew() -> None:
    member = MemberUnderTest()
    member.hear(TWO, offer(), offer())
    assert len(member.fetches) == 2


def test_a_follower_begins_after_the_snapshot_once_it_is_installed_7() -> None:
    # requirement: RT4
    member = MemberUnderTest()
    member.hear(TWO, append(2, BEFORE_LOG, span(1, 0, 3)), offer())
    assert member.core.may_install(SNAPSHOT)
    member.feed(SnapshotInstalled(SNAPSHOT, FOUR_VOTERS))
    core = member.core
    assert (core.last, core.commit_index, core.durable_index) == (SNAPSHOT, 9, 9)
    assert (core.membership, member.told) == (FOUR_VOTERS, [FOUR_VOTERS])
    assert accepted(member) == [3, 9]
    member.hear(TWO, append(2, SNAPSHOT, span(2, 10, 12)))
    assert accepted(member) == [3, 9, 12]


def test_a_log_that_conflicts_with_the_snapshot_is_replaced_7() -> None:
    member = MemberUnderTest(term=1, runs=[(0, 4), (1, 20)], commit=3)
    member.hear(TWO, offer(snapshot=entry(2, 9)))
    assert member.core.may_install(entry(2, 9))
    member.feed(SnapshotInstalled(entry(2, 9), FOUR_VOTERS))
    assert member.core.last == entry(2, 9)


def test_a_log_that_holds_the_snapshot_is_kept_with_what_follows_7() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 20)])
    member.hear(TWO, offer())
    assert member.fetches == []
    assert accepted(member) == [9]
    assert (member.core.last, member.core.commit_index) == (entry(1, 19), 9)


def test_a_snapshot_that_the_log_has_come_to_hold_meanwhile_must_not_replace_it_7() -> None:
    member = MemberUnderTest()
    member.hear(TWO, offer(), append(2, BEFORE_LOG, span(1, 0, 19)))
    assert member.core.commit_index == -1
    assert not member.core.may_install(SNAPSHOT)
    with pytest.raises(InvariantViolated, match="must not be replaced"):
        member.feed(SnapshotInstalled(SNAPSHOT, FOUR_VOTERS))


def test_an_old_offer_and_a_repeated_install_change_nothing_7() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 20)], commit=15)
    member.hear(TWO, offer())
    assert accepted(member) == [15]
    assert not member.core.may_install(SNAPSHOT)
    member.feed(SnapshotInstalled(SNAPSHOT, FOUR_VOTERS))
    assert (member.core.last, member.core.commit_index) == (entry(1, 19), 15)
    assert (member.core.membership, member.fetches) == (members(1, 2, 3), [])


def test_a_snapshot_before_the_log_start_replaces_nothing_7() -> None:
    member = MemberUnderTest(snapshot=SNAPSHOT, term=1, runs=[(1, 5)], commit=14)
    assert not member.core.may_install(entry(1, 4))


def test_no_snapshot_replaces_a_log_while_a_write_is_on_its_way() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.hear(TWO, offer())
    assert not member.core.may_install(SNAPSHOT)  # the term is not durable yet
    member.finish()
    assert member.core.may_install(SNAPSHOT)


def test_an_offer_of_an_earlier_term_is_answered_with_ours() -> None:
    member = MemberUnderTest(term=7)
    member.hear(TWO, offer())
    assert (member.fetches, member.said(AppendReply)[-1].term) == ([], 7)


def test_an_offer_is_a_sign_of_life_of_the_leader() -> None:
    member = MemberUnderTest()
    for _ in range(5):
        member.hear(TWO, offer())
        member.tick(ELECTION_TICKS)
        assert (member.core.role, member.core.leader) == (Role.FOLLOWER, TWO)


def test_a_candidate_that_gets_the_snapshot_at_last_follows_again() -> None:
    member = MemberUnderTest()
    member.hear(TWO, offer())
    member.feed(Campaign())
    member.feed(SnapshotInstalled(SNAPSHOT, FOUR_VOTERS))
    assert (member.core.role, member.core.last) == (Role.FOLLOWER, SNAPSHOT)


def test_an_append_from_before_our_log_start_is_answered_with_what_is_committed() -> None:
    member = MemberUnderTest(snapshot=SNAPSHOT, term=1, runs=[(1, 5)], commit=12)
    member.hear(TWO, append(2, entry(1, 4), span(1, 5, 14)))
    assert accepted(member) == [12]


# The leader


def test_a_follower_that_needs_entries_from_before_the_log_is_offered_the_snapshot_7() -> None:
    member = cut_leader()
    refuse(member, 14, entry(1, 3))
    assert member.said(SnapshotOffer) == [
        SnapshotOffer(term=Term(2), snapshot=SNAPSHOT, membership=members(1, 2, 3))
    ]
    assert member.core.status().awaiting_snapshot == {THREE}
    assert member.replicated == []


def test_a_follower_that_refuses_the_very_start_of_the_log_is_offered_the_snapshot_7() -> None:
    member = cut_leader()
    refuse(member, 14, entry(1, 9))
    assert [order.previous for order in member.replicated] == [SNAPSHOT]
    refuse(member, 9, entry(0, 8))
    assert len(member.said(SnapshotOffer, THREE)) == 1


def test_no_entries_are_sent_while_a_snapshot_is_awaited_7() -> None:
    member = cut_leader()
    refuse(member, 14, entry(1, 3))
    member.feed(Propose(Token(1), 5))
    refuse(member, 14, entry(1, 3))  # a late one
    member.acknowledge(THREE, 3)  # and a late one of the other kind
    assert {order.to for order in member.replicated} == {TWO}
    assert len(member.said(SnapshotOffer)) == 1


def test_an_offer_is_repeated_each_election_timeout_and_after_a_lost_connection() -> None:
    member = cut_leader()
    refuse(member, 14, entry(1, 3))
    beat(member, ELECTION_TICKS - 3)
    assert len(member.said(SnapshotOffer)) == 1
    beat(member, 3)
    assert len(member.said(SnapshotOffer)) == 2
    beat(member, 4 * ELECTION_TICKS)
    assert len(member.said(SnapshotOffer)) == 6


def test_entries_follow_behind_the_snapshot_once_it_is_accepted_7() -> None:
    # requirement: F2
    member = cut_leader()
    refuse(member, 14, entry(1, 3))
    member.acknowledge(THREE, 9)
    assert [(order.to, order.first, order.last) for order in member.replicated] == [(THREE, 10, 14)]
    assert member.core.status().awaiting_snapshot == frozenset()


def test_a_running_leader_whose_log_is_cut_offers_what_it_begins_with_now_7() -> None:
    member = MemberUnderTest(
        term=1,
        runs=[(1, 5)],
        commit=4,
        memberships=[MembershipEntry(Index(2), members(1, 2, 3, learners=[4]))],
    )
    member.become_leader(caught_up=False)
    assert member.core.membership_at(Index(1)) == members(1, 2, 3)
    assert member.core.membership_at(Index(3)) == members(1, 2, 3, learners=[4])
    member.acknowledge(TWO, 4)
    member.feed(LogTruncatedPrefix(entry(1, 3)), LogTruncatedPrefix(entry(1, 1)))
    refuse(member, 4, BEFORE_LOG)
    (said,) = member.said(SnapshotOffer)
    assert (said.snapshot, said.membership) == (entry(1, 3), members(1, 2, 3, learners=[4]))


def test_a_log_that_moves_on_during_a_transfer_is_offered_anew_7() -> None:
    member = cut_leader()
    refuse(member, 14, entry(1, 3))
    member.feed(LogTruncatedPrefix(entry(1, 12)))
    member.acknowledge(THREE, 9)
    assert [said.snapshot.index for said in member.said(SnapshotOffer)] == [9, 12]
    member.acknowledge(THREE, 12)
    assert [(order.first, order.last) for order in member.replicated] == [(13, 14)]


@pytest.mark.parametrize("snapshot", [entry(1, 15), entry(7, 12)])
def test_only_what_is_committed_and_really_there_is_cut_off(snapshot: EntryId) -> None:
    member = MemberUnderTest(term=1, runs=[(1, 20)], commit=14)
    with pytest.raises(InvariantViolated):
        member.feed(LogTruncatedPrefix(snapshot))


def test_a_log_of_nothing_but_a_snapshot_elects_and_replicates_7() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 10)], commit=9)
    member.feed(LogTruncatedPrefix(SNAPSHOT))
    member.become_leader(caught_up=False)
    assert [vote.last for vote in member.said(VoteRequest)] == [SNAPSHOT] * 4
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 9)
    member.acknowledge(TWO, 10)
    assert member.core.commit_index == 10
    assert all(isinstance(order.previous, EntryId) for order in member.replicated)


def test_cutting_the_log_wakes_nobody() -> None:
    member = MemberUnderTest()
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 2), commit=2))
    member.hear(TWO, Heartbeat(term=Term(1), commit_index=Index(2), round=7, quiesces=True))
    member.feed(LogTruncatedPrefix(entry(1, 1)), Tick())
    assert member.core.is_quiescent
    member.hear(THREE, append(2, entry(1, 0), span(1, 1, 2), span(2, 3, 3)))
    assert accepted(member)[-1] == 2


def test_a_vote_rests_on_the_snapshot_where_there_is_nothing_else_5_4_1() -> None:
    member = MemberUnderTest(snapshot=SNAPSHOT, term=1)
    member.hear(TWO, VoteRequest(term=Term(2), last=entry(1, 8)))
    member.hear(THREE, VoteRequest(term=Term(3), last=entry(1, 9)))
    assert [vote.granted for vote in member.said(VoteReply)] == [False, True]


def test_replication_goes_on_from_a_cut_log_7() -> None:
    member = cut_leader()
    member.acknowledge(THREE, 14)
    member.feed(Propose(Token(1), 1))
    assert member.said(AppendRequest) == []
    assert {(order.to, order.first, order.last) for order in member.replicated} == {
        (TWO, 15, 15),
        (THREE, 15, 15),
    }
