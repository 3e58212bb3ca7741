"""Jobs of a queue that nobody can read, and dead letters that are jobs again."""

from __future__ import annotations

import pytest

from queues.all_queues import QueueLimits
from queues.requests import DeadJob, DeleteQueue, Reopen, Settled, Token
from queues.work_queue import IDLE_MS
from raftlog.errors import NoLeader, Overloaded
from raftlog.hosting.decisions import Write
from tests.helpers.worked_off import LEASE_MS, WorkedOff

# requirement: A7


def offsets(tokens: list[Token]) -> list[int]:
    """Of these jobs."""
    return [token.offset for token in tokens]


def test_a_batch_that_cannot_be_read_is_one_dead_letter_and_blocks_nothing(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    bad = mail.spoil(3)
    mail.produce(b"")
    tokens = mail.take(10)
    assert offsets(tokens) == [0, bad + 3]
    assert mail.view().parts[0].dead == 1
    mail.settle("ack", tokens)
    assert mail.done_below() == bad  # the dead letter is not stored yet
    mail.fail_over()
    mail.store_letters()
    assert [(each.offset, each.deliveries, each.reason) for each in mail.buried] == [
        (bad, 0, "the batch cannot be read")
    ]
    assert mail.done_below() == bad + 4
    assert mail.take() == []


def test_a_receive_that_finds_only_what_cannot_be_read_waits_on(mail: WorkedOff) -> None:
    for _ in range(9):  # more than one look finds
        mail.spoil()
    waiting = mail.receive(wait_ms=20_000)
    assert waiting not in mail.answers
    assert len(mail.buried) == 9
    (offset,) = mail.produce(b"")
    assert mail.held(waiting) == [(0, offset, 1)]


def test_a_dead_letter_that_is_redriven_is_a_job_again(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    first, second = mail.take(2)
    mail.settle("dead", [first], reason="poison")
    mail.settle("ack", [second])
    assert mail.done_below() == 2
    mail.redrive(0)
    mail.redrive(0)  # its first answer was lost
    assert mail.done_below() == 0
    mail.fail_over()
    request = mail.receive(5)
    assert mail.held(request) == [(0, 0, 1)]
    mail.redrive(0)  # while a worker has it
    assert mail.settle("ack", [first]) == (0,)
    mail.settle("dead", [Token(0, 0, mail.last_lease)], reason="again")
    assert [(each.reason, each.redrives) for each in mail.buried] == [("poison", 0), ("again", 1)]
    assert mail.done_below() == 2
    mail.redrive(0, redrives=2)
    mail.settle("ack", mail.take())
    assert mail.take() == []


def test_a_dead_letter_that_is_redriven_before_its_job_is_closed_is_not_lost(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    mail.settle("dead", mail.take(), reason="poison")
    mail.redrive(0)  # the dead letter is stored, and the coordinator does not know it yet
    mail.store_letters()
    assert offsets(mail.take()) == [0]


def test_a_dead_letter_is_stored_although_an_earlier_one_of_its_job_is_reported_late(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    mail.settle("dead", mail.take(), reason="poison")
    mail.redrive(0)
    mail.settle("dead", mail.take(), reason="again")
    mail.burials, later = mail.burials[:1], mail.burials[1:]
    mail.store_letters()
    assert later
    assert mail.done_below() == 0
    mail.fail_over()  # before the later one is stored
    mail.store_letters()
    assert [each.reason for each in mail.buried] == ["poison", "again"]
    assert mail.done_below() == 1


def test_a_repetition_of_a_redrive_that_is_late_is_no_second_one(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    mail.settle("dead", mail.take(), reason="poison")
    mail.redrive(0)
    mail.settle("dead", mail.take(), reason="again")
    mail.redrive(0)  # its first answer was lost
    assert mail.take() == []
    mail.redrive(0, redrives=2)
    assert offsets(mail.take()) == [0]


def test_what_nobody_has_had_or_another_topic_has_is_not_redriven(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    mail.settle("ack", mail.take())
    mail.redrive(1)
    assert mail.view().parts[0].waiting == 0
    mail.topic_id = "t2"
    mail.redrive(0)
    assert mail.view().parts[0].waiting == 0


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_dead_letter_of_a_partition_without_jobs_since_is_redriven(fails_over: bool) -> None:
    mail = WorkedOff(partitions=2)
    mail.produce(b"", partition=1)
    mail.settle("dead", mail.take(), reason="poison")
    mail.delete_queue()
    mail.produce(b"")
    mail.settle("ack", mail.take())  # a queue again, with a row of partition 0 only
    if fails_over:
        mail.fail_over()
    else:
        mail.after(2 * IDLE_MS)
    jobs = (DeadJob(1, 0, b"", 1),)
    mail.ask(Reopen(group="g", topic="mail", topic_id="t1", jobs=jobs), Settled)
    assert [(token.partition, token.offset) for token in mail.take(5)] == [(1, 0)]


def test_a_redrive_is_refused_while_its_partition_is_not_known() -> None:
    mail = WorkedOff(partitions=1)
    mail.produce(b"")
    mail.settle("ack", mail.take())
    jobs = (DeadJob(1, 0, b"", 1),)
    refused = mail.send(Reopen(group="g", topic="mail", topic_id="t1", jobs=jobs))
    assert isinstance(mail.answers[refused], NoLeader)


def test_redriven_jobs_need_room_too() -> None:
    mail = WorkedOff(limits=QueueLimits(queue_max=2))
    mail.produce(b"", b"", b"")
    mail.settle("dead", mail.take())
    mail.take(2)
    jobs = (DeadJob(0, 0, b"", 1),)
    refused = mail.send(Reopen(group="g", topic="mail", topic_id="t1", jobs=jobs))
    assert isinstance(mail.answers[refused], Overloaded)
    assert len(mail.committed.jobs["g"]) == 2


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_redriven_job_waits_for_those_of_its_key(mail: WorkedOff, fails_over: bool) -> None:
    mail.produce(b"a", b"a", b"a")
    mail.settle("dead", mail.take(is_ordered=True))
    second = mail.take(5, is_ordered=True)
    assert offsets(second) == [1]
    mail.redrive(0, key=b"a")
    if fails_over:
        mail.fail_over()
    assert mail.take(5, is_ordered=True) == []  # one of the key is delivered at a time
    mail.settle("ack", second)
    done = []
    while tokens := mail.take(5, is_ordered=True):
        assert len(tokens) == 1
        done += offsets(tokens)
        mail.settle("ack", tokens)
    assert sorted(done) == [0, 2]
    assert mail.done_below() == 3


# requirement: A7
@pytest.mark.parametrize("known", ["t2", "t1"])
def test_a_broker_that_does_not_know_the_topic_of_now_ends_no_queue(mail: WorkedOff, known: str) -> None:
    """Not with the id of the topic before, and not with the next one before the coordinator knows it."""
    mail.create_again("mail", "t2")
    mail.topic_id = "t2"
    mail.produce(b"", b"", b"")
    first, *others = mail.take(3)
    assert mail.settle("ack", others) == ()
    mail.create_again("mail", known)
    refused = mail.receive(5, topic_id="t1" if known == "t2" else "t3")
    assert isinstance(mail.answers[refused], NoLeader)
    assert mail.take(5) == [], "the lease runs, and the rest is done"
    assert mail.settle("ack", [first]) == ()


# requirement: A7
@pytest.mark.parametrize("rows_kept", range(1, 7))
def test_jobs_whose_queue_was_deleted_in_part_are_delivered_again(rows_kept: int) -> None:
    """The rows of a deletion stand in several batches if there are many."""
    mail = WorkedOff(partitions=2)
    for partition in (0, 1):
        mail.produce(b"", b"", partition=partition)
    places = {(partition, offset) for partition in (0, 1) for offset in (0, 1)}
    assert {(token.partition, token.offset) for token in (*mail.take(2), *mail.take(2))} == places
    mail.holds_back = True
    mail.send(DeleteQueue(group="g", topic="mail"))
    (rows,) = [wanted.rows for wanted in mail.held_back if isinstance(wanted, Write)]
    assert len(rows) == 6, "two partitions with two jobs each"
    mail.held_back = [Write(rows[:rows_kept])]
    mail.holds_back = False
    mail.fail_over(kept=1)
    mail.after(LEASE_MS)
    again = [*mail.take(5), *mail.take(5)]
    assert {(token.partition, token.offset) for token in again} == places
    assert mail.settle("ack", again) == ()
    mail.fail_over()
    assert not mail.committed.jobs.get("g")
    assert [mail.done_below(partition) for partition in (0, 1)] == [2, 2]
