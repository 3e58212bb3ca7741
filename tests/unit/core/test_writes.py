"""What the disk has, and which messages wait for it."""

import pytest

from raftlog.core.entries import EntryKind
from raftlog.core.messages import AppendReply, Envelope
from raftlog.core.ready import HardState, Write
from raftlog.core.writes import Writes
from raftlog.errors import InvariantViolated
from raftlog.types import Index, NodeId, Term, WriteId
from tests.helpers.raft_member import changed, members, span


def appended(writes: Writes, term: int, first: int, last: int) -> Write:
    writes.append(Term(term), Index(first), Index(last), EntryKind.DATA)
    write = writes.take()
    assert write is not None
    return write


def accepted(index: int, term: int = 1) -> Envelope:
    return Envelope(NodeId(2), AppendReply(term=Term(term), accepted=True, match_index=Index(index)))


def test_nothing_gathered_is_no_write() -> None:
    writes = Writes(Index(4))
    assert writes.take() is None
    assert writes.durable_index == 4
    assert writes.all_finished


def test_the_log_is_durable_up_to_the_newest_finished_write() -> None:
    writes = Writes(Index(-1))
    first, second, third = (appended(writes, 1, start, start + 1) for start in (0, 2, 4))
    writes.finish(first.write_id)
    assert writes.durable_index == 1
    writes.finish(third.write_id)  # the second finished before it
    assert writes.durable_index == 5
    writes.finish(second.write_id)
    assert writes.durable_index == 5
    assert writes.all_finished


def test_a_write_in_flight_says_nothing_about_what_has_replaced_its_entries() -> None:
    writes = Writes(Index(-1))
    overwritten = appended(writes, 1, 0, 9)
    writes.truncate(Index(4))
    replacing = appended(writes, 2, 4, 9)
    assert (replacing.truncate_from, replacing.spans) == (4, (span(2, 4, 9),))
    assert writes.hold_back(accepted(9, 2), Index(9))
    writes.finish(overwritten.write_id)
    assert writes.durable_index == 3
    assert writes.finish(replacing.write_id) == [accepted(9, 2)]
    assert writes.durable_index == 9


def test_entries_that_come_back_after_being_overwritten_count_only_once_written_again() -> None:
    writes = Writes(Index(-1))
    once = appended(writes, 1, 0, 9)
    writes.truncate(Index(4))
    between = appended(writes, 2, 4, 5)
    writes.truncate(Index(4))
    again = appended(writes, 1, 4, 9)
    for write in (once, between):
        writes.finish(write.write_id)
        assert writes.durable_index == 3
    writes.finish(again.write_id)
    assert writes.durable_index == 9


def test_durable_entries_that_are_removed_are_durable_no_longer() -> None:
    writes = Writes(Index(9))
    writes.truncate(Index(5))
    assert writes.durable_index == 4
    assert not writes.all_finished


def test_entries_removed_before_they_were_handed_out_leave_no_trace() -> None:
    writes = Writes(Index(4))
    writes.append(Term(1), Index(5), Index(9), EntryKind.DATA)
    writes.truncate(Index(7))
    writes.append(Term(2), Index(7), Index(7), EntryKind.DATA)
    write = writes.take()
    assert write is not None
    assert (write.truncate_from, write.spans) == (None, (span(1, 5, 6), span(2, 7, 7)))


def test_the_deepest_of_several_truncations_counts() -> None:
    writes = Writes(Index(9))
    writes.truncate(Index(7))
    writes.append(Term(2), Index(7), Index(8), EntryKind.DATA)
    writes.truncate(Index(3))
    write = writes.take()
    assert write is not None
    assert (write.truncate_from, write.spans) == (3, ())


def test_a_promise_of_durable_things_need_not_wait() -> None:
    writes = Writes(Index(9))
    assert not writes.hold_back(accepted(9), Index(9))
    appended(writes, 1, 10, 12)
    assert not writes.hold_back(accepted(9), Index(9))
    assert writes.hold_back(accepted(10), Index(10))


def test_a_promise_waits_for_the_term_even_if_its_entries_are_durable() -> None:
    writes = Writes(Index(9))
    writes.save_hard_state(HardState(Term(3), None))
    assert writes.hold_back(accepted(9, 3), Index(9))
    write = writes.take()
    assert write is not None
    assert write.send_after == (accepted(9, 3),)
    assert writes.hold_back(accepted(8, 3), Index(8))
    assert not writes.hard_state_is_durable
    assert writes.finish(write.write_id) == [accepted(8, 3)]
    assert writes.hard_state_is_durable


def test_promises_of_an_earlier_term_are_dropped() -> None:
    writes = Writes(Index(-1))
    write = appended(writes, 1, 0, 3)
    writes.hold_back(accepted(3), Index(3))
    writes.save_hard_state(HardState(Term(2), None))
    assert writes.finish(write.write_id) == []


def test_a_write_that_was_never_handed_out_cannot_finish() -> None:
    with pytest.raises(InvariantViolated, match="write 1 finished"):
        Writes(Index(-1)).finish(WriteId(1))


def test_each_membership_is_a_span_of_its_own() -> None:
    writes = Writes(Index(-1))
    writes.append(Term(1), Index(0), Index(0), EntryKind.MEMBERSHIP, members(1, 2))
    writes.append(Term(1), Index(1), Index(1), EntryKind.MEMBERSHIP, members(1))
    writes.append(Term(1), Index(2), Index(2), EntryKind.DATA)
    writes.truncate(Index(2))
    write = writes.take()
    assert write is not None
    assert write.spans == (changed(1, 0, members(1, 2)), changed(1, 1, members(1)))


def test_a_log_that_a_snapshot_has_replaced_is_durable_up_to_it() -> None:
    writes = Writes(Index(4))
    writes.restart(Index(99))
    assert writes.durable_index == 99
    write = appended(writes, 1, 100, 101)
    assert writes.durable_index == 99
    writes.finish(write.write_id)
    assert writes.durable_index == 101


def test_of_replies_that_wait_for_one_write_the_newest_is_kept() -> None:
    writes = Writes(Index(-1))
    write = appended(writes, 1, 0, 3)
    for _ in range(100):
        assert writes.hold_back(accepted(3), Index(3))
    assert writes.finish(write.write_id) == [accepted(3)]


def test_what_stands_on_the_hard_state_alone_waits_for_no_entries() -> None:
    writes = Writes(Index(4))
    entries = appended(writes, 1, 5, 9)
    writes.save_hard_state(HardState(Term(2), NodeId(3)))
    assert writes.hold_back(accepted(4, 2), Index(4))
    assert writes.hold_back(accepted(9, 2), Index(9))
    vote = writes.take()
    assert vote is not None
    assert vote.send_after == (accepted(4, 2),)
    assert writes.hold_back(accepted(3, 2), Index(3))
    assert not writes.hard_state_is_durable
    assert writes.hard_state_saved(vote.write_id) == [accepted(3, 2)]
    assert writes.hard_state_is_durable
    assert not writes.hold_back(accepted(2, 2), Index(2))
    assert writes.durable_index == 4
    assert writes.finish(entries.write_id) == []
    assert writes.finish(vote.write_id) == [accepted(9, 2)]
