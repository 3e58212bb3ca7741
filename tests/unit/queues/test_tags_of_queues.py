"""Queues of records with some tags: what is delivered, what counts as consumed, and who is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queues.effects import Found
from queues.requests import DeadJob, DeleteQueue, Reopen
from queues.work_queue import IDLE_MS
from raftlog.errors import Conflict, NoLeader
from raftlog.records.tags import TagSelection
from tests.helpers.worked_off import WorkedOff

# requirement: A10

PAID = TagSelection(any=("paid",))


@pytest.fixture
def paid(mail: WorkedOff) -> WorkedOff:
    """A queue of ``paid`` records: offsets 1 and 4 of 6."""
    mail.selection = PAID
    for tags in ((), ("paid",), ("new",), ("new", "vip"), ("vip", "paid"), ("new",)):
        mail.produce(b"k", tags=tags)
    return mail


def test_what_is_skipped_counts_as_consumed(paid: WorkedOff) -> None:
    first, second = paid.take(5)
    assert (first.offset, second.offset) == (1, 4)
    assert paid.done_below() == 1
    assert paid.settle("ack", [first]) == ()
    assert paid.done_below() == 4
    assert paid.settle("ack", [second]) == ()
    assert (paid.done_below(), paid.committed.jobs) == (6, {})
    paid.produce(b"", b"", tags=("new",))
    assert paid.take() == []
    assert paid.done_below() == 8


def test_a_queue_that_waits_moves_on_past_what_it_skips_with_one_look(paid: WorkedOff) -> None:
    paid.settle("ack", paid.take(5))
    waiting = paid.receive(wait_ms=60_000)
    before = len(paid.looks)
    for _ in range(10):
        paid.produce(b"", tags=("new",))
    assert len(paid.looks) == before
    paid.end_looks()
    assert (paid.done_below(), len(paid.looks)) == (16, before + 1)
    assert paid.looks[-1].wait_ms, "a look that does not wait is followed by the next one at once"
    paid.produce(b"", tags=("paid",))
    assert paid.held(waiting) == [(0, 16, 1)]


def idle(paid: WorkedOff) -> None:
    paid.after(IDLE_MS)


@pytest.mark.parametrize("passes", [WorkedOff.fail_over, idle, lambda paid: None])
def test_the_first_receive_decides_about_the_tags(
    paid: WorkedOff, passes: Callable[[WorkedOff], None]
) -> None:
    """Also after a fail-over, and after nobody has asked for jobs for long."""
    paid.settle("ack", paid.take(5))
    passes(paid)
    paid.selection = None
    for other, field in ((None, "tags"), (TagSelection(any=("paid",), none=("vip",)), "tags_none")):
        refused = paid.answers[paid.receive(selection=other)]
        assert isinstance(refused, Conflict)
        words = "all records" if other is None else f"records with {other}"
        assert f"delivers records with {PAID}, but this request asks for {words};" in str(refused)
        assert refused.details["field"] == field
    paid.selection = PAID
    assert (paid.view().tags, paid.view().tags_none) == (("paid",), ())
    paid.produce(b"", tags=("new",))
    paid.produce(b"", tags=("paid",))
    assert [token.offset for token in paid.take(5)] == [7]


def test_a_queue_that_is_deleted_may_have_other_tags(paid: WorkedOff) -> None:
    paid.take()
    paid.delete_queue()
    assert [token.offset for token in paid.take(5)] == [1, 4]
    paid.delete_queue()
    paid.selection = TagSelection(all=("new",), none=("vip",))
    assert [token.offset for token in paid.take(5)] == [2, 5]


@pytest.mark.parametrize(("before", "after"), [((PAID, False), (None, False)), ((None, False), (None, True))])
def test_a_look_of_a_queue_that_was_deleted_finds_nothing_for_the_next_one(
    paid: WorkedOff, before: tuple[TagSelection | None, bool], after: tuple[TagSelection | None, bool]
) -> None:
    """It skips other records, and without keys an ordered queue would not know what blocks what."""
    paid.take()  # so that there is a queue
    paid.delete_queue()
    paid.holds_back = True
    paid.selection, is_ordered = before
    paid.receive(is_ordered=is_ordered)
    paid.send(DeleteQueue(group="g", topic="mail"))
    paid.selection, is_ordered = after
    received = paid.receive(10, is_ordered=is_ordered)
    paid.carry_out()
    offsets = [offset for _, offset, _ in paid.held(received)]
    assert offsets == ([1] if is_ordered else [1, 2, 3, 4])  # one look finds four


def test_a_batch_that_nobody_can_read_is_a_dead_letter_although_its_tags_are_not_known(
    paid: WorkedOff,
) -> None:
    bad = paid.spoil(3)
    paid.settle("ack", paid.take(5))
    assert [each.offset for each in paid.buried] == [bad]
    assert paid.done_below() == bad + 3


def test_a_redriven_job_is_one_of_the_same_queue(paid: WorkedOff) -> None:
    """The queue may have been deleted, and made with other tags, while its dead letters were read."""
    paid.settle("dead", paid.take(), reason="poison")
    paid.redrive(1)
    assert [token.offset for token in paid.take(5)] == [1, 4]
    paid.settle("dead", paid.take(), reason="poison")
    jobs = (DeadJob(0, 1, b"", 2),)
    for_another = Reopen(group="g", topic="mail", topic_id="t1", jobs=jobs, tags=("new",))
    assert isinstance(paid.answers[paid.send(for_another)], NoLeader)
    assert paid.view().parts[0].waiting == 0


def test_a_memory_of_tags_is_counted(paid: WorkedOff) -> None:
    paid.take()
    small = paid.committed.used.of("g")
    paid.delete_queue()
    paid.selection = TagSelection(any=("paid" * 50, "vip" * 50))
    paid.records[0] = [Found(6)]
    paid.tags[0, 6], paid.ends[0] = ("paid" * 50,), 7
    paid.take()
    assert paid.committed.used.of("g") > small + 2 * 150
