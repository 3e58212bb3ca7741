"""Queues that are deleted, or whose topic is created again: what ends them, and what their jobs become."""

from __future__ import annotations

import pytest

from groups.queue_requests import DeleteQueue
from raftlog.errors import NoLeader
from raftlog.hosting.decisions import Write
from tests.helpers.worked_off import LEASE_MS, WorkedOff


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
