"""Elections while entries wait for the disk: votes do not wait, and count what the disk holds (5.4.1)."""

from __future__ import annotations

from raftlog.core.inputs import HardStateSaved
from raftlog.core.messages import TimeoutNow, VoteReply, VoteRequest
from raftlog.core.ready import Role
from raftlog.types import BEFORE_LOG, Term
from tests.helpers.raft_member import THREE, TWO, MemberUnderTest, append, entry, span


def request(term: int, **flags: bool) -> VoteRequest:
    return VoteRequest(term=Term(term), last=entry(0, -1), **flags)


# requirement: N4
def test_entries_that_wait_for_the_disk_keep_nobody_from_a_vote_5_4_1() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 4)))
    member.hear(THREE, request(2, is_transfer=True))
    assert member.said(VoteReply) == []
    member.feed(HardStateSaved(member.unfinished[-1].write_id))
    (vote,) = member.unfinished[-1].send_after
    assert vote.message == VoteReply(term=Term(2), asked=Term(2), granted=True)
    assert (member.core.durable_index, member.core.last.index) == (-1, 4)
    member.hear(THREE, request(2, is_transfer=True))  # it did not hear the first answer
    assert member.said(VoteReply, THREE) == [VoteReply(term=Term(2), asked=Term(2), granted=True)]


def test_a_candidate_names_what_its_disk_holds_and_counts_its_vote_before_entries_5_4_1() -> None:
    member = MemberUnderTest(slow_disk=True)
    member.hear(TWO, append(1, BEFORE_LOG, span(1, 0, 4)))
    member.hear(TWO, TimeoutNow(term=Term(1)))
    assert member.said(VoteRequest) == []
    member.feed(HardStateSaved(member.unfinished[-1].write_id))
    assert [message.last for message in member.said(VoteRequest)] == [BEFORE_LOG, BEFORE_LOG]
    member.hear(THREE, VoteReply(term=Term(2), asked=Term(2), granted=True))
    assert member.core.role is Role.LEADER
    assert member.core.last.index == 5
