"""Answers of the workers of a queue that are repeated, or come after the lease."""

from __future__ import annotations

import pytest

from queues.ended import ENDED_MAX
from queues.records import JobKey
from queues.requests import Token
from queues.work_queue import IDLE_MS
from tests.helpers.worked_off import LEASE_MS, WorkedOff

# requirement: A7


@pytest.mark.parametrize("how", ["ack", "nack", "extend", "dead"])
def test_a_receipt_that_is_sent_again_and_again_is_written_once(mail: WorkedOff, how: str) -> None:
    mail.produce(b"")
    (token,) = mail.take()
    mail.settle(how, [token] * 100, LEASE_MS)
    jobs = [key for key, _ in mail.written[-1] if isinstance(key, JobKey)]
    assert len(jobs) == 1
    assert mail.settle("extend", [Token(0, 0, b"another")] * 3, LEASE_MS) == (0, 1, 2)


@pytest.mark.parametrize("is_buried", [False, True])
def test_a_dead_letter_is_not_done_when_its_workers_answer_late(mail: WorkedOff, is_buried: bool) -> None:
    mail.stores_letters = is_buried
    mail.produce(b"")
    earlier = mail.take(deliveries_max=2)
    mail.after(LEASE_MS)
    last = mail.take(deliveries_max=2)
    mail.after(2 * IDLE_MS)
    assert len(mail.buried) == is_buried
    for tokens in (earlier, last):
        assert mail.settle("ack", tokens) == (0,), "a redrive would do it twice"
    assert mail.settle("nack", earlier) == (0,)
    assert mail.settle("nack", last) == ()
    assert mail.settle("dead", last) == ()


def test_a_redriven_job_that_is_done_may_be_acknowledged_again(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.settle("dead", mail.take())
    mail.redrive(0)
    tokens = mail.take()
    for _ in range(2):
        assert mail.settle("ack", tokens) == ()


def test_a_job_that_was_given_back_may_be_given_back_again_by_its_worker_alone(mail: WorkedOff) -> None:
    mail.produce(b"")
    tokens = mail.take()
    assert mail.settle("nack", tokens) == ()
    other = mail.take()
    assert mail.settle("nack", tokens) == (), "it was carried out"
    assert mail.settle("ack", tokens) == (0,)
    assert mail.view().parts[0].leased == 1
    assert mail.settle("ack", other) == ()
    assert mail.settle("nack", tokens) == ()


def test_the_ends_of_so_many_deliveries_are_remembered_and_no_more(mail: WorkedOff) -> None:
    mail.produce(*[b""] * (ENDED_MAX + 1))
    tokens = list[Token]()
    for _ in range(ENDED_MAX + 1):
        tokens += mail.take(deliveries_max=1)
        mail.after(LEASE_MS)
    assert mail.settle("ack", [tokens[0], tokens[1], tokens[-1]]) == (1, 2)
