"""The rules of the Raft paper on log replication, safety and reads, one test each.

Section numbers are the paper's; "thesis" is Ongaro's.
"""

import pytest

from raftlog.core.entries import EntryKind
from raftlog.core.inputs import (
    AppendCut,
    AppendDropped,
    ConfirmRead,
    Input,
    PeerUnreachable,
    Propose,
    WriteFinished,
)
from raftlog.core.messages import AppendReply, Heartbeat, HeartbeatReply, VoteReply
from raftlog.core.ready import Appended, ReadConfirmed, Refused, Role
from raftlog.errors import InvariantViolated
from raftlog.types import BEFORE_LOG, EntryId, Index, Term, Token, WriteId
from tests.helpers.raft_member import ELECTION_TICKS, THREE, TWO, MemberUnderTest, append, entry, span


def accepted(member: MemberUnderTest) -> list[int]:
    return [reply.match_index for reply in member.said(AppendReply) if reply.accepted]


def test_a_leader_appends_a_proposal_and_sends_it_to_all_5_3() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 3))
    assert member.settled == [Appended(Token(1), entry(1, 0))]
    assert [write.spans for write in member.writes] == [(span(1, 0, 2),)]
    assert [(sent.to, sent.previous, sent.first, sent.last) for sent in member.replicated] == [
        (TWO, BEFORE_LOG, 0, 2),
        (THREE, BEFORE_LOG, 0, 2),
    ]


def test_proposals_made_together_travel_together() -> None:
    # requirement: B3
    member = MemberUnderTest()
    member.become_leader()
    member.core.step(Propose(Token(1), 3))
    member.core.step(Propose(Token(2), 2))
    member.feed(Propose(Token(3), 1))
    assert [write.spans for write in member.writes] == [(span(1, 0, 5),)]
    assert [settled.id.index for settled in member.settled if isinstance(settled, Appended)] == [0, 3, 5]
    assert len(member.replicated) == 2


def test_an_entry_is_committed_once_a_majority_has_it_durably_5_3() -> None:
    # requirement: P5
    member = MemberUnderTest(voters=5, slow_disk=True)
    member.become_candidate()
    member.finish()
    for peer in (TWO, THREE):
        member.hear(peer, VoteReply(term=Term(1), asked=Term(1), granted=True))
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    assert member.core.commit_index == -1
    member.acknowledge(THREE, 0)
    assert member.core.commit_index == -1  # two of five: our own copy is not durable yet
    member.finish()
    assert member.core.commit_index == 0


def test_a_majority_without_the_leader_commits_5_3() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.become_candidate()
    member.finish()
    member.hear(TWO, VoteReply(term=Term(1), asked=Term(1), granted=True))
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    member.acknowledge(THREE, 0)
    assert (member.core.commit_index, member.core.durable_index) == (0, -1)


def test_a_follower_learns_what_is_committed_but_no_more_than_it_matches_5_3() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 5)])
    member.hear(TWO, append(2, entry(1, 1), commit=9))
    assert member.core.commit_index == 1
    member.hear(TWO, append(2, entry(1, 4), span(2, 5, 6), commit=6))
    assert member.core.commit_index == 6


def test_a_leader_tells_a_follower_of_no_commit_beyond_what_it_holds() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 4))
    member.acknowledge(TWO, 3)
    member.tick(3)
    assert [beat.commit_index for beat in member.said(Heartbeat, TWO)][-1] == 3
    assert [beat.commit_index for beat in member.said(Heartbeat, THREE)][-1] == -1


@pytest.mark.parametrize(
    ("previous", "hint"),
    [
        (entry(9, 8), entry(3, 5)),  # too long: our newest
        (entry(3, 7), entry(3, 5)),
        (entry(4, 5), entry(3, 5)),  # another term there: the newest that may match
        (entry(2, 5), entry(2, 3)),  # the whole of term 3 is skipped
        (entry(1, 4), entry(1, 1)),
        (entry(0, 3), BEFORE_LOG),
    ],
)
def test_a_follower_that_lacks_the_previous_entry_says_where_to_look_5_3(
    previous: EntryId, hint: EntryId
) -> None:
    member = MemberUnderTest(term=3, runs=[(1, 2), (2, 2), (3, 2)])
    request = append(9, previous)
    member.hear(TWO, request)
    assert member.said(AppendReply) == [
        AppendReply(term=Term(9), accepted=False, match_index=request.previous.index, hint=hint)
    ]
    assert all(not write.spans and write.truncate_from is None for write in member.writes)


def test_a_conflicting_entry_and_all_after_it_are_removed_5_3() -> None:
    member = MemberUnderTest(term=3, runs=[(1, 2), (2, 4)])
    member.hear(TWO, append(3, entry(1, 1), span(3, 2, 3)))
    assert (member.writes[-1].truncate_from, member.writes[-1].spans) == (2, (span(3, 2, 3),))
    assert member.core.last == entry(3, 3)
    assert accepted(member) == [3]


def test_entries_that_agree_are_never_removed_5_3() -> None:
    member = MemberUnderTest(term=3, runs=[(1, 2), (2, 4)])
    member.hear(TWO, append(3, BEFORE_LOG, span(1, 0, 1), span(2, 2, 3)), append(3, entry(1, 1)))
    assert [(write.truncate_from, write.spans) for write in member.writes if write.hard_state is None] == []
    assert member.core.last == entry(2, 5)
    assert accepted(member) == [3, 1]


def test_only_what_is_new_of_a_request_is_written_5_3() -> None:
    member = MemberUnderTest(term=2, runs=[(1, 2), (2, 2)])
    member.hear(TWO, append(3, entry(1, 0), span(1, 1, 1), span(2, 2, 6), span(3, 7, 7)))
    assert [write.spans for write in member.writes if write.spans] == [(span(2, 4, 6), span(3, 7, 7))]


def test_a_repeated_request_is_answered_again_and_changes_nothing_5_3() -> None:
    member = MemberUnderTest()
    request = append(1, BEFORE_LOG, span(1, 0, 4))
    member.hear(TWO, request, request)
    assert accepted(member) == [4, 4]
    assert len([write for write in member.writes if write.spans]) == 1


def test_an_accepted_append_is_promised_only_when_durable() -> None:
    # requirement: P5
    member = MemberUnderTest(slow_disk=True)
    request = append(1, BEFORE_LOG, span(1, 0, 4))
    member.hear(TWO, request)
    member.hear(TWO, request)  # present, but in flight: waits for the same write
    member.hear(TWO, append(1, BEFORE_LOG))  # present, but the term is not durable
    assert accepted(member) == []
    member.finish()
    assert accepted(member) == [4, 4, -1]
    member.hear(TWO, request)
    assert accepted(member) == [4, 4, -1, 4]


def test_each_promise_waits_for_the_write_that_covers_it() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 0)), append(1, entry(1, 0), span(1, 1, 3)))
    member.hear(TWO, append(1, entry(1, 3)), append(1, entry(1, 0)))
    member.finish()
    assert accepted(member) == [0, 0]
    member.finish()
    assert accepted(member) == [0, 0, 3, 3]


def test_a_leader_walks_back_by_terms_until_the_logs_meet_5_3() -> None:
    member = MemberUnderTest(term=6, runs=[(1, 3), (4, 2), (5, 2), (6, 3)])
    member.become_leader(caught_up=False)
    assert [(sent.previous, sent.last) for sent in member.replicated if sent.to == TWO] == [(entry(6, 9), 9)]
    member.hear(TWO, AppendReply(term=Term(7), accepted=False, match_index=Index(9), hint=entry(3, 9)))
    assert member.replicated[-1].previous == entry(1, 2)
    member.acknowledge(TWO, 2)
    assert (member.replicated[-1].first, member.replicated[-1].last) == (3, 10)


def test_a_late_rejection_is_ignored_5_3() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 4))
    member.acknowledge(TWO, 3)
    member.forget()
    for previous in (-1, 3, 7):
        reply = AppendReply(term=Term(1), accepted=False, match_index=Index(previous), hint=BEFORE_LOG)
        member.hear(TWO, reply, reply)
    assert (member.replicated, member.sent) == ([], [])


def test_an_answer_causes_a_bounded_number_of_messages() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for token in range(40):
        member.feed(Propose(Token(token), 1))
    member.most_sent_at_once = 0
    for index in [3, 3, 15, 15, 2, 39]:
        member.acknowledge(TWO, index)
        reply = AppendReply(term=Term(1), accepted=False, match_index=Index(20), hint=entry(1, 5))
        member.hear(
            THREE, reply, reply, HeartbeatReply(term=Term(1), round=1), HeartbeatReply(term=Term(1), round=1)
        )
    assert member.most_sent_at_once == 1


def test_no_more_appends_are_in_flight_than_allowed() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for token in range(40):
        member.feed(Propose(Token(token), 1))
    assert [sent.last for sent in member.replicated if sent.to == TWO] == list(range(16))
    member.acknowledge(TWO, 0)
    assert [(sent.first, sent.last) for sent in member.replicated if sent.to == TWO][16:] == [(16, 39)]


def test_a_cut_append_is_followed_by_the_rest() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 10))
    member.feed(AppendCut(TWO, Index(3)))
    assert [(sent.first, sent.last) for sent in member.replicated if sent.to == TWO] == [(0, 9), (4, 9)]
    member.forget()
    member.feed(AppendCut(TWO, Index(9)), AppendCut(THREE, Index(44)))
    assert member.replicated == []


def test_what_was_ordered_behind_a_cut_append_is_sent_again() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for token in range(3):
        member.feed(Propose(Token(token), 2))
    assert [(sent.first, sent.last) for sent in member.replicated if sent.to == TWO] == [
        (0, 1),
        (2, 3),
        (4, 5),
    ]
    member.forget()
    member.feed(AppendCut(TWO, Index(2)))  # of the second append one entry, of the third none
    assert [(sent.first, sent.last) for sent in member.replicated if sent.to == TWO] == [(3, 5)]
    member.acknowledge(TWO, 5)
    member.forget()
    member.feed(AppendCut(TWO, Index(4)))  # too late: they are there
    assert member.replicated == []


def test_what_was_ordered_behind_a_cut_append_is_in_flight_no_more() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for token in range(16):
        member.feed(Propose(Token(token), 1))
    member.feed(AppendCut(TWO, Index(0)))  # of sixteen appends the first was sent, then (1, 15)
    member.forget()
    for token in range(16, 32):
        member.feed(Propose(Token(token), 1))
    assert [sent.first for sent in member.replicated if sent.to == TWO] == list(range(16, 30))


def test_an_acknowledged_append_is_not_in_flight_after_a_cut() -> None:
    member = MemberUnderTest()
    member.become_leader()
    for token in range(2):
        member.feed(Propose(Token(token), 2))
    member.acknowledge(TWO, 1)
    member.forget()
    member.feed(AppendCut(TWO, Index(1)))  # the second was never sent
    assert [(sent.first, sent.last) for sent in member.replicated if sent.to == TWO] == [(2, 3)]


@pytest.mark.parametrize(
    "lost", [PeerUnreachable(TWO), AppendDropped(TWO)], ids=lambda lost: type(lost).__name__
)
def test_a_lost_append_leads_back_to_probing(lost: Input) -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 2))
    member.feed(lost, Propose(Token(2), 2))
    assert [sent.first for sent in member.replicated if sent.to == TWO] == [0]
    member.hear(TWO, HeartbeatReply(term=Term(1), round=1))
    probe = member.replicated[-1]
    assert (probe.previous, probe.last) == (entry(1, 1), 1)
    member.acknowledge(TWO, 1)
    assert (member.replicated[-1].first, member.replicated[-1].last) == (2, 3)


def test_a_follower_keeps_its_leader_when_an_append_to_it_was_dropped() -> None:
    member = MemberUnderTest()
    member.hear(TWO, Heartbeat(term=Term(1), commit_index=Index(-1), round=1))
    member.feed(AppendDropped(TWO))  # ordered while this member led
    assert member.core.leader == TWO


# 5.4.2 Entries of earlier terms


def test_a_new_leader_with_a_tail_appends_one_leader_change_entry_5_4_2() -> None:
    member = MemberUnderTest(term=2, runs=[(1, 2), (2, 1)], commit=1)
    member.become_leader(caught_up=False)
    assert member.core.last == entry(3, 3)


def test_a_new_leader_without_a_tail_appends_nothing() -> None:
    # requirement: T5
    for runs, commit in ([], -1), ([(1, 2), (2, 1)], 2):
        member = MemberUnderTest(term=2, runs=runs, commit=commit)
        member.become_leader(caught_up=False)
        assert member.core.last.index == commit
        member.feed(Propose(Token(1), 1))
        assert member.settled == [Appended(Token(1), entry(3, commit + 1))]


def test_an_entry_of_an_earlier_term_is_committed_only_by_one_of_our_own_5_4_2() -> None:
    member = MemberUnderTest(term=2, runs=[(1, 2), (2, 1)], commit=0)
    member.become_leader(caught_up=False)
    member.acknowledge(TWO, 2)
    member.acknowledge(THREE, 2)
    assert member.core.commit_index == 0
    member.acknowledge(TWO, 3)
    assert member.core.commit_index == 3


def test_the_leader_change_entry_is_marked() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 1)], slow_disk=True)
    member.become_candidate()
    member.finish()
    member.hear(TWO, VoteReply(term=Term(2), asked=Term(2), granted=True))
    assert [found.kind for found in member.writes[-1].spans] == [EntryKind.LEADER_CHANGE]


# 5.4.3 Safety


def test_what_is_committed_is_never_truncated_5_4_3() -> None:
    member = MemberUnderTest(term=2, runs=[(1, 4)], commit=2)
    with pytest.raises(InvariantViolated, match="commit index 2"):
        member.hear(TWO, append(2, entry(1, 1), span(2, 2, 2)))


def test_two_leaders_of_one_term_stop_the_process_5_2() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    with pytest.raises(InvariantViolated, match="both lead term 1"):
        member.follow(THREE)


def test_a_write_that_was_never_handed_out_cannot_finish() -> None:
    with pytest.raises(InvariantViolated):
        MemberUnderTest().feed(WriteFinished(WriteId(4)))


def test_a_commit_hint_beyond_the_log_is_cut_to_it() -> None:
    assert MemberUnderTest(term=1, runs=[(1, 3)], commit=9).core.commit_index == 2


# 8 and thesis 6.4 Linearizable reads


def test_a_read_is_confirmed_by_a_heartbeat_round_that_began_after_it_thesis_6_4() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 1))
    member.acknowledge(TWO, 0)
    member.tick(3)
    before = member.said(Heartbeat)[-1].round
    member.forget()
    member.feed(ConfirmRead(Token(2)))
    member.hear(TWO, HeartbeatReply(term=Term(1), round=before))
    assert member.settled == []
    member.hear(TWO, HeartbeatReply(term=Term(1), round=member.said(Heartbeat)[-1].round))
    assert member.settled == [ReadConfirmed(Token(2), Index(0))]


def test_a_read_needs_a_quorum_of_echoes_thesis_6_4() -> None:
    member = MemberUnderTest(voters=5)
    member.become_leader(caught_up=False)
    member.feed(ConfirmRead(Token(2)))
    round_asked = member.said(Heartbeat)[-1].round
    member.hear(
        TWO, HeartbeatReply(term=Term(1), round=round_asked), HeartbeatReply(term=Term(1), round=round_asked)
    )
    assert member.settled == []
    member.hear(THREE, HeartbeatReply(term=Term(1), round=round_asked))
    assert member.settled == [ReadConfirmed(Token(2), Index(-1))]


def test_reads_that_come_during_a_round_share_the_next_one_thesis_6_4() -> None:
    member = MemberUnderTest(voters=5)
    member.become_leader()
    member.feed(ConfirmRead(Token(1)))
    first = member.said(Heartbeat)[-1].round
    member.feed(ConfirmRead(Token(2)), ConfirmRead(Token(3)))
    assert {heartbeat.round for heartbeat in member.said(Heartbeat)} == {first}
    for peer in (TWO, THREE):
        member.hear(peer, HeartbeatReply(term=Term(1), round=first))
    assert {heartbeat.round for heartbeat in member.said(Heartbeat)} == {first, first + 1}


def test_a_read_waits_until_a_new_leader_has_committed_in_its_term_thesis_6_4() -> None:
    member = MemberUnderTest(term=1, runs=[(1, 3)], commit=0)
    member.become_leader(caught_up=False)
    member.feed(ConfirmRead(Token(1)))
    member.hear(TWO, HeartbeatReply(term=Term(2), round=1))
    assert member.settled == []
    member.acknowledge(TWO, 3)
    assert member.settled == [ReadConfirmed(Token(1), Index(3))]


def test_reads_are_refused_when_leadership_is_lost() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(ConfirmRead(Token(1)))
    member.hear(THREE, Heartbeat(term=Term(5), commit_index=Index(-1), round=1))
    assert member.settled == [Refused(Token(1), THREE)]


def test_a_group_of_one_elects_commits_and_reads_alone() -> None:
    member = MemberUnderTest(voters=1)
    member.tick(2 * ELECTION_TICKS)
    assert member.core.role is Role.LEADER
    member.feed(Propose(Token(1), 2), ConfirmRead(Token(2)))
    assert member.core.commit_index == 1
    assert member.settled == [Appended(Token(1), entry(1, 0)), ReadConfirmed(Token(2), Index(1))]


def test_a_group_of_one_answers_a_read_that_comes_just_before_a_heartbeat() -> None:
    member = MemberUnderTest(voters=1)
    member.tick(2 * ELECTION_TICKS)
    tokens = [Token(number) for number in range(10)]
    for token in tokens:
        member.core.step(ConfirmRead(token))
        member.tick()
    assert [settled.token for settled in member.settled] == tokens
