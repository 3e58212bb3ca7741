"""Leases of the jobs of a queue: who has which job, until when, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FrameType

import pytest
from msgspec.structs import replace

from groups.requests import DeleteGroup, Done
from queues.all_queues import QueueLimits
from queues.effects import Looked
from queues.records import JobKey, QueueKey
from queues.requests import DeleteQueue, ReadQueue, Receive, Received, Settle, Settled, Token
from queues.waiters import GRACE_MS
from raftlog.errors import Conflict, NoLeader, Overloaded, QueueNotFound, TopicNotFound
from tests.helpers.profiled import opcodes_of, profiled
from tests.helpers.worked_off import LEASE_MS, WorkedOff

# requirement: A7

HOUR_MS = 3_600_000


def offsets(tokens: list[Token]) -> list[int]:
    """Of these jobs."""
    return [token.offset for token in tokens]


def test_two_workers_share_one_partition(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    assert offsets(mail.take()) == [0]
    assert offsets(mail.take(5)) == [1, 2]
    assert mail.take() == []


def test_a_job_that_is_acknowledged_is_done_and_others_are_delivered_again(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    first, second, third = mail.take(3)
    assert mail.settle("ack", [second]) == ()
    assert mail.done_below() == 0
    mail.after(LEASE_MS - 1)
    assert mail.take() == []
    mail.after(1)
    request = mail.receive(5)
    assert mail.held(request) == [(0, 0, 2), (0, 2, 2)]
    assert mail.settle("ack", [Token(0, 0, mail.last_lease), Token(0, 2, mail.last_lease)]) == ()
    assert mail.done_below() == 3
    assert mail.committed.jobs == {}
    assert (first.offset, third.offset) == (0, 2)


def test_an_old_receipt_of_a_job_that_another_worker_has_is_refused(mail: WorkedOff) -> None:
    mail.produce(b"")
    (old,) = mail.take()
    mail.after(LEASE_MS)
    (new,) = mail.take()
    for how in ("ack", "nack", "extend", "dead"):
        assert mail.settle(how, [old], 1_000) == (0,), how
    assert mail.view().parts[0].leased == 1
    assert mail.settle("ack", [new]) == ()


def test_a_late_acknowledgement_counts_while_nobody_else_has_the_job(mail: WorkedOff) -> None:
    mail.produce(b"")
    tokens = mail.take()
    mail.after(LEASE_MS + 5_000)
    assert mail.settle("extend", tokens, LEASE_MS) == (0,)
    assert mail.settle("ack", tokens) == ()
    assert mail.take() == []
    assert mail.done_below() == 1


def test_an_acknowledgement_may_be_repeated_and_a_made_up_one_is_refused(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    tokens = mail.take()
    assert mail.settle("ack", tokens) == ()
    assert mail.settle("ack", tokens) == ()
    assert mail.settle("nack", tokens) == (0,)
    foreign = b"x" * 8
    assert mail.settle("ack", [Token(0, 1, foreign), Token(0, 7, foreign), Token(9, 0, foreign)]) == (0, 1, 2)
    (held,) = mail.take()
    assert mail.settle("ack", [Token(0, 1, foreign), held]) == (0,)
    assert mail.done_below() == 2


def test_a_job_that_was_given_back_waits_for_its_delay(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    first, second = mail.take(2)
    assert mail.settle("nack", [first], 5_000, "busy") == ()
    assert mail.settle("nack", [first], 5_000, "busy") == ()
    assert mail.settle("nack", [second]) == ()
    assert mail.held(mail.receive(2)) == [(0, 1, 2)]
    mail.after(4_999)
    assert mail.take() == []
    mail.after(1)
    assert mail.held(mail.receive()) == [(0, 0, 2)]


def test_a_lease_that_is_extended_lasts_from_then_on(mail: WorkedOff) -> None:
    mail.produce(b"")
    tokens = mail.take()
    mail.after(LEASE_MS - 1)
    assert mail.settle("extend", tokens, LEASE_MS) == ()
    mail.after(LEASE_MS - 1)
    assert mail.take() == []
    mail.after(1)
    assert offsets(mail.take()) == [0]


def test_a_job_goes_to_the_dead_letters_after_its_last_delivery(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    for deliveries in (1, 2):
        request = mail.receive(deliveries_max=2, count=2)
        assert mail.held(request) == [(0, 0, deliveries), (0, 1, deliveries)]
        if deliveries == 1:
            mail.after(LEASE_MS)
    mail.settle("nack", [Token(0, 0, mail.last_lease)], 60_000, "no such address")
    assert [(each.offset, each.deliveries, each.reason) for each in mail.buried] == [
        (0, 2, "no such address")
    ]
    mail.after(LEASE_MS)
    assert [(each.offset, each.reason) for each in mail.buried[1:]] == [
        (1, "the lease ended without an answer")
    ]
    assert mail.done_below() == 2
    assert mail.committed.jobs == {}


def test_a_worker_gives_a_job_up(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    tokens = mail.take()
    assert mail.settle("dead", tokens, reason="poison") == ()
    assert mail.settle("dead", tokens, reason="poison") == ()
    assert mail.settle("ack", tokens) == (0,)
    assert mail.view().parts[0].dead == 1
    assert mail.take() == []
    assert mail.done_below() == 0
    mail.store_letters()
    assert [each.reason for each in mail.buried] == ["poison"]
    assert mail.done_below() == 1
    assert mail.settle("dead", tokens, reason="poison") == ()


def test_a_next_coordinator_stores_a_dead_letter_that_may_be_missing(mail: WorkedOff) -> None:
    mail.stores_letters = False
    mail.produce(b"")
    mail.settle("dead", mail.take(), reason="poison")
    mail.fail_over()
    mail.store_letters()
    assert [(each.offset, each.topic_id, each.reason) for each in mail.buried] == [(0, "t1", "poison")]
    assert mail.done_below() == 1


def test_a_dead_letter_is_stored_after_it_is_decided_for_good(mail: WorkedOff) -> None:
    mail.produce(b"")
    tokens = mail.take()
    mail.holds_back = True
    mail.send(Settle(group="g", topic="mail", tokens=tuple(tokens), how="dead"))
    kinds = [type(each).__name__ for each in mail.held_back]
    assert kinds.index("Write") < kinds.index("Bury")


def test_a_lease_survives_a_fail_over_with_its_receipt(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    tokens = mail.take()
    mail.after(10_000)
    mail.fail_over()
    assert offsets(mail.take()) == [1]
    mail.after(LEASE_MS - 10_000 - 1)
    assert mail.take() == []
    mail.after(1)
    assert mail.held(mail.receive()) == [(0, 0, 2)]
    assert mail.settle("ack", tokens) == (0,)
    assert mail.settle("ack", [Token(0, 0, mail.last_lease)]) == ()


def test_an_acknowledgement_counts_after_a_fail_over(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    tokens = mail.take(2)
    mail.fail_over()
    assert mail.settle("ack", tokens[:1]) == ()
    mail.fail_over()
    assert mail.settle("ack", tokens) == ()
    assert mail.take() == []
    assert mail.done_below() == 2


def test_what_is_done_stays_done_after_a_fail_over(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"", b"")
    stays = mail.take()
    for _ in range(2):
        mail.settle("ack", mail.take())
    mail.fail_over()
    assert offsets(mail.take(5)) == [3]
    mail.settle("ack", stays)
    assert mail.done_below() == 3


def test_a_delay_survives_a_fail_over(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.settle("nack", mail.take(), 60_000)
    mail.fail_over()
    mail.after(59_999)
    assert mail.take() == []
    mail.after(1)
    assert mail.held(mail.receive()) == [(0, 0, 2)]


def test_a_receive_that_is_repeated_gets_the_same_jobs(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    first = mail.held(mail.receive(2, lease=b"repeated"))
    assert mail.held(mail.receive(2, lease=b"repeated")) == first
    mail.fail_over()
    assert mail.held(mail.receive(2, lease=b"repeated")) == first
    assert offsets(mail.take(3)) == [2]


def test_a_receive_waits_for_a_job(mail: WorkedOff) -> None:
    mail.produce(b"")
    assert len(mail.take()) == 1
    waiting = [mail.receive(wait_ms=20_000) for _ in range(2)]
    mail.after(10_000)
    assert not any(request in mail.answers for request in waiting)
    mail.produce(b"")
    assert mail.held(waiting[0]) == [(0, 1, 1)]
    mail.after(9_999)
    assert waiting[1] not in mail.answers
    mail.after(1)
    assert mail.held(waiting[1]) == []


def test_a_receive_that_waits_gets_what_another_gives_back(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    first, _ = mail.take(2)
    waiting = mail.receive(wait_ms=60_000)
    mail.settle("nack", [first])
    assert mail.held(waiting) == [(0, 0, 2)]
    mail.settle("ack", [Token(0, 0, mail.last_lease)])
    waiting = mail.receive(wait_ms=60_000)
    mail.after(LEASE_MS)
    assert mail.held(waiting) == [(0, 1, 2)]


def test_what_a_client_that_has_gone_was_given_is_given_back_and_does_not_count(mail: WorkedOff) -> None:
    mail.produce(b"")
    waiting = mail.receive(wait_ms=20_000, lease=b"it waits")
    assert mail.held(waiting) == [(0, 0, 1)]
    mail.abandon(b"it waits")
    assert mail.held(mail.receive(wait_ms=20_000, lease=b"it comes")) == [(0, 0, 1)]
    waiting = mail.receive(wait_ms=20_000, lease=b"it leaves")
    mail.abandon(b"it leaves")
    mail.produce(b"")
    assert mail.held(waiting) == []
    assert mail.held(mail.receive()) == [(0, 1, 1)]


def test_control_records_are_no_jobs_and_are_stepped_over(mail: WorkedOff) -> None:
    mail.skip(2)
    mail.produce(b"")
    mail.skip(1)
    mail.produce(b"")
    mail.skip(3)
    tokens = mail.take(5)
    assert offsets(tokens) == [2, 4]
    mail.take()
    mail.settle("ack", tokens)
    assert mail.done_below() == 8


def test_partitions_give_jobs_in_turn() -> None:
    mail = WorkedOff(3)
    for partition in range(3):
        mail.produce(b"", b"", partition=partition)
    assert [(token.partition, token.offset) for token in mail.take(6)] == [
        (0, 0),
        (0, 1),
    ]  # what was found first
    mail.produce(b"", b"")
    given = [(token.partition, token.offset) for _ in range(3) for token in mail.take()]
    assert given == [(1, 0), (2, 0), (1, 1)]


def test_a_partition_with_much_to_do_does_not_hide_another() -> None:
    mail = WorkedOff(2)
    mail.produce(*[b""] * 50)
    mail.take()
    mail.produce(b"", partition=1)
    mail.after(1_000)
    seen = {token.partition for _ in range(3) for token in mail.take()}
    assert seen == {0, 1}


def test_so_many_jobs_may_be_open_and_no_more() -> None:
    mail = WorkedOff(limits=QueueLimits(queue_max=3))
    mail.produce(*[b""] * 10)
    tokens = mail.take(10)
    assert offsets(tokens) == [0, 1, 2]
    refused = mail.answers[mail.receive(wait_ms=0)]
    assert isinstance(refused, Overloaded), refused
    assert refused.details["retry_after_ms"] == 1_000
    waiting = mail.receive(10, wait_ms=5_000)
    mail.settle("ack", tokens[:2])
    assert mail.held(waiting) == [(0, 3, 1)]
    assert offsets(mail.take(5)) == [4]
    mail.fail_over()
    assert isinstance(mail.answers[mail.receive()], Overloaded)


def test_slots_of_jobs_are_used_again(mail: WorkedOff) -> None:
    mail.produce(*[b""] * 100)
    for _ in range(50):
        mail.settle("ack", mail.take(2))
    keys = {key for rows in mail.written for key, _ in rows if isinstance(key, JobKey)}
    assert {key.slot for key in keys} == {0, 1}
    assert mail.done_below() == 100


def test_a_partition_that_cannot_be_read_is_tried_again(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.faults[0] = NoLeader("an election")
    assert isinstance(mail.answers[mail.receive()], NoLeader)
    waiting = mail.receive(wait_ms=5_000)
    mail.after(1_000)
    assert waiting not in mail.answers
    del mail.faults[0]
    mail.after(1_000)
    assert mail.held(waiting) == [(0, 0, 1)]
    assert 3 <= len(mail.looks) < 12


def test_other_partitions_give_jobs_while_one_cannot_be_read() -> None:
    mail = WorkedOff(2)
    mail.produce(b"", partition=1)
    mail.faults[0] = NoLeader("an election")
    assert [(token.partition, token.offset) for token in mail.take()] == [(1, 0)]
    assert mail.take() == []


def test_a_receive_that_waits_gets_jobs_of_a_new_partition(mail: WorkedOff) -> None:
    waiting = mail.receive(wait_ms=20_000)
    mail.after(1_000)
    mail.records[1], mail.ends[1], mail.starts[1] = [], 0, 0
    mail.produce(b"", partition=1)
    mail.set_partitions("mail", 2)
    mail.after(0)
    assert mail.held(waiting) == [(1, 0, 1)]


def test_a_receive_that_waits_is_told_that_its_topic_was_deleted() -> None:
    mail = WorkedOff(2)
    waiting = mail.receive(wait_ms=20_000)
    assert len(mail.parked) == 2
    for partition in range(2):
        mail.faults[partition] = TopicNotFound("the topic mail was deleted")
    mail.skip(partition=0)
    assert isinstance(mail.answers[waiting], TopicNotFound)


def test_records_that_retention_has_deleted_are_no_jobs(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"", b"")
    mail.cut(2)
    assert offsets(mail.take(9)) == [2, 3]


def test_a_topic_that_was_created_again_begins_at_its_first_record(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    old = mail.take(2)
    mail.settle("ack", old[:1])
    mail.records[0], mail.ends[0], mail.topic_id = [], 0, "t2"
    mail.create_again("mail", "t2")
    mail.produce(b"")
    assert offsets(mail.take(5)) == [0]
    assert mail.settle("ack", old[1:]) == (0,)
    mail.fail_over()
    assert mail.settle("ack", [Token(0, 0, mail.last_lease)]) == ()
    assert mail.done_below() == 1


def test_a_queue_begins_where_the_group_is(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    mail.commit(Done, 2, topic="mail")
    assert offsets(mail.take(5)) == [2]


def test_a_group_does_not_consume_by_members_what_it_works_off(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    mail.take()
    assert isinstance(mail.answers[mail.join("m", "mail")], Conflict)
    assert isinstance(mail.commit(Conflict, 1, topic="mail", is_forced=True), Conflict)
    mail.stable("m", group="h")
    mail.counts["orders"] = 1
    other = mail.join("m", "orders")
    assert not isinstance(mail.answers[other], Conflict)
    assert isinstance(mail.answers[mail.receive()], Conflict)


def test_a_queue_that_was_deleted_delivers_again_what_was_not_done(mail: WorkedOff) -> None:
    mail.produce(b"", b"", b"")
    tokens = mail.take(3)
    mail.settle("ack", [tokens[0], tokens[2]])
    waiting = mail.receive(wait_ms=5_000)
    mail.delete_queue()
    assert mail.held(waiting) == []
    assert isinstance(mail.answers[mail.send(ReadQueue(group="g", topic="mail"))], QueueNotFound)
    assert mail.settle("ack", tokens[1:2]) == (0,)
    assert mail.held(mail.receive(5, is_ordered=True)) == [(0, 1, 1), (0, 2, 1)]
    assert isinstance(mail.answers[mail.send(DeleteQueue(group="g", topic="other"))], QueueNotFound)


def test_a_group_that_is_deleted_has_no_queue(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    mail.take(1)
    mail.ask(DeleteGroup(group="g"), Done)
    assert (mail.committed.jobs, mail.committed.queues, mail.committed.offsets) == ({}, {}, {})
    assert offsets(mail.take(5)) == [0, 1]


def test_a_group_that_is_deleted_takes_no_queue_of_another(mail: WorkedOff) -> None:
    mail.produce(b"", b"")
    mail.take(1)
    of_h = Receive(
        group="h", topic="mail", topic_id="t1", lease=b"h", count_max=1, lease_ms=LEASE_MS, deliveries_max=10
    )
    mail.ask(of_h, Received)
    waiting = mail.send(replace(of_h, lease=b"i", count_max=2, wait_ms=HOUR_MS, topic_id="t1"))
    mail.ask(DeleteGroup(group="g"), Done)
    done = Settle(group="h", topic="mail", tokens=(Token(0, 0, b"h"), Token(0, 1, b"i")), how="ack")
    assert mail.held(waiting) == [(0, 1, 1)]
    assert mail.ask(done, Settled).lost == ()


def test_a_lease_that_is_extended_is_answered_with_its_end(mail: WorkedOff) -> None:
    mail.produce(b"")
    extend = Settle(group="g", topic="mail", tokens=tuple(mail.take()), how="extend", time_ms=HOUR_MS)
    assert mail.ask(extend, Settled).until_ms == mail.wall_ms + HOUR_MS


def test_a_lease_that_is_extended_writes_no_row_of_the_queue(mail: WorkedOff) -> None:
    mail.produce(b"")
    tokens = mail.take()
    mail.written.clear()
    assert mail.settle("extend", tokens, HOUR_MS) == ()
    assert mail.written
    assert [key for rows in mail.written for key, _ in rows if isinstance(key, QueueKey)] == []


def test_a_queue_expires_that_nobody_uses_and_no_other() -> None:
    mail = WorkedOff(retention_ms=2 * HOUR_MS)
    mail.produce(b"")
    mail.settle("ack", mail.take())
    for _ in range(30):
        waiting = mail.receive(wait_ms=HOUR_MS // 6)
        mail.after(HOUR_MS // 6)
        assert mail.held(waiting) == []
    assert mail.done_below() == 1
    mail.after(3 * HOUR_MS)
    assert (mail.committed.queues, mail.committed.groups, mail.committed.offsets) == ({}, {}, {})


def test_one_job_of_a_key_is_delivered_at_a_time_and_in_order(mail: WorkedOff) -> None:
    mail.produce(b"a", b"a", b"b", b"", b"a", b"")
    first = mail.take(10, is_ordered=True)
    assert offsets(first) == [0, 2, 3]
    assert offsets(mail.take(10, is_ordered=True)) == [5]
    assert mail.take(10, is_ordered=True) == []
    mail.settle("nack", first[:1], 5_000)
    assert mail.take(10, is_ordered=True) == []
    mail.fail_over()
    assert mail.take(10, is_ordered=True) == []
    mail.after(5_000)
    again = mail.take(10, is_ordered=True)
    assert offsets(again) == [0]
    mail.settle("ack", again)
    second = mail.take(10, is_ordered=True)
    assert offsets(second) == [1]
    mail.settle("dead", second)
    assert offsets(mail.take(10, is_ordered=True)) == [4]


def test_the_order_is_one_for_all_workers_of_a_queue(mail: WorkedOff) -> None:
    mail.produce(b"a", b"a")
    mail.take(is_ordered=True)
    assert isinstance(mail.answers[mail.receive()], Conflict)
    mail.fail_over()
    assert isinstance(mail.answers[mail.receive()], Conflict)


def test_many_jobs_behind_one_of_their_key_do_not_hide_others(mail: WorkedOff) -> None:
    mail.produce(*[b"a"] * 1_000, b"b")
    assert offsets(mail.take(is_ordered=True)) == [0]
    assert offsets(mail.take(is_ordered=True)) == [1_000]
    assert mail.view().parts[0].waiting == 999


def test_a_receive_that_does_not_wait_is_told_within_the_grace(mail: WorkedOff) -> None:
    mail.holds_back = True
    request = mail.receive()
    mail.after(GRACE_MS)
    mail.carry_out()
    assert mail.held(request) == []


def test_a_look_of_earlier_times_changes_nothing(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.settle("ack", mail.take())
    mail.coordination.queues.looked(mail.looks[0], Looked(0, 9), mail.now_ms, mail.wall_ms)
    mail.produce(b"")
    assert offsets(mail.take()) == [1]


def test_an_idle_queue_costs_no_timer(mail: WorkedOff) -> None:
    mail.produce(b"")
    mail.settle("ack", mail.take())
    assert isinstance(mail.answers[mail.receive()], Received)
    mail.after(HOUR_MS)
    assert mail.coordination.queues.next_deadline_ms() is None
    mail.produce(b"")
    assert offsets(mail.take()) == [1]


def calls_of(step: Callable[[], object]) -> int:
    """The Python functions that a step calls or resumes."""
    calls = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    with profiled(note):
        step()
    return calls


# requirement: N2
def test_a_step_asks_no_partition_for_each_receive_that_waits() -> None:
    """A thousand workers of a thousand partitions would hold the event loop of a broker all the time."""
    workers = partitions = 200
    mail = WorkedOff(partitions)
    waiting = [mail.receive(wait_ms=HOUR_MS) for _ in range(workers)]
    mail.end_looks()  # each partition was looked at since the last receive
    mail.after(HOUR_MS - 1)
    assert not mail.answers
    assert calls_of(lambda: mail.after(1)) < 20 * workers
    assert [mail.held(request) for request in waiting] == [[]] * workers


def crowded(count: int) -> WorkedOff:
    """As many receives wait as the topic has partitions, of which one has had a job."""
    mail = WorkedOff(count)
    mail.produce(b"")
    mail.held(mail.receive())
    for _ in range(count):
        mail.receive(wait_ms=HOUR_MS)
    mail.end_looks()
    return mail


def ends_a_look(mail: WorkedOff) -> None:
    look = mail.parked[-1]
    ended = Looked(look.offset, look.offset, (), is_at_end=True)
    mail.coordination.queues.looked(look, ended, mail.now_ms, mail.wall_ms)


def fails_a_look(mail: WorkedOff) -> None:
    mail.coordination.queues.looked(mail.parked[-1], NoLeader("no leader"), mail.now_ms, mail.wall_ms)


def gives_a_job_back(mail: WorkedOff) -> None:
    mail.settle("nack", [Token(0, 0, (1).to_bytes(8, "big"))])


def extends_a_lease(mail: WorkedOff) -> None:
    mail.settle("extend", [Token(0, 0, (1).to_bytes(8, "big"))], LEASE_MS)


def leaves(mail: WorkedOff) -> None:
    mail.abandon(mail.last_lease)


def ends_a_lease(mail: WorkedOff) -> None:
    mail.after(LEASE_MS)


# requirement: N2
@pytest.mark.parametrize(
    "step", [ends_a_look, fails_a_look, gives_a_job_back, extends_a_lease, leaves, ends_a_lease]
)
def test_a_step_of_a_queue_costs_the_same_with_many_partitions_and_receives(
    step: Callable[[WorkedOff], None],
) -> None:
    few, many = (opcodes_of(partial(step, crowded(count))) for count in (20, 160))
    assert many < 1.5 * few
