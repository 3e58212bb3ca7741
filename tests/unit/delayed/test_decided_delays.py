"""When messages are due, how they are moved, and what requests about them are told."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from delayed.lanes import MOVE_COUNT_MAX
from delayed.recent import RECENT_MS
from delayed.records import Lane, LaneKey
from delayed.requests import (
    Add,
    Added,
    Cancel,
    DeleteSchedule,
    Done,
    Found,
    NeedsProducerId,
    Read,
    ReadMany,
    Reschedule,
    When,
)
from delayed.state import RECORD_BYTES, DelayedState
from raftlog.errors import (
    DelayedAlreadyDelivered,
    DelayedNotFound,
    InvalidRequest,
    OutOfOrderSequence,
    Overloaded,
    QuotaExceeded,
    StorageFull,
)
from raftlog.hosting.budget import RECHECK_MS
from raftlog.records.batch import EPOCH_MAX
from tests.helpers.decided_delays import Coordinator, Target, add, create, id_of, new

HALF_HOUR_MS = 1_800_000
DAY_MS = 86_400_000
LANE = LaneKey("orders", 0)


def described(coordinator: Coordinator, number: int) -> tuple[str, str]:
    """State and reason of a message."""
    reply = coordinator.ask(Read(id=id_of(number)))
    assert isinstance(reply, Found), reply
    return reply.messages[0].state, reply.messages[0].reason


# requirement: A3
def test_a_message_moves_when_it_is_due_and_not_earlier() -> None:
    coordinator = Coordinator()
    assert coordinator.ask(add(new(1, delay_ms=HALF_HOUR_MS))) == Added((1_000_000 + HALF_HOUR_MS,))
    coordinator.advance(HALF_HOUR_MS - 1)
    coordinator.deliver()
    assert coordinator.values() == []
    assert described(coordinator, 1) == ("pending", "")
    coordinator.advance(1)
    coordinator.deliver()
    assert coordinator.values() == [1]
    assert isinstance(coordinator.ask(Read(id=id_of(1))), DelayedAlreadyDelivered)
    assert not coordinator.committed.waiting


# requirement: A3
def test_only_what_needs_no_time_of_now_is_accepted_while_brokers_agree_on_none() -> None:
    coordinator = Coordinator()
    accepted = coordinator.ask(add(new(1, delay_ms=HALF_HOUR_MS)))
    coordinator.decisions.is_time_known = False
    for request in (
        add(new(2, delay_ms=HALF_HOUR_MS)),
        add(new(2, at_ms=2_000_000), delay_ms_max=DAY_MS),  # is it within the retention of the topic?
        Reschedule(id=id_of(1), when=When(delay_ms=HALF_HOUR_MS)),
    ):
        assert isinstance(coordinator.ask(request), Overloaded)
    assert coordinator.ask(add(new(1, delay_ms=HALF_HOUR_MS))) == accepted, "a repetition"
    assert coordinator.ask(add(new(2, at_ms=2_000_000))) == Added((2_000_000,))
    assert isinstance(coordinator.ask(Reschedule(id=id_of(2), when=When(at_ms=3_000_000))), Found)
    assert coordinator.ask(Cancel(id=id_of(1))) == Done()


# requirement: A6
def test_an_order_is_checked_half_an_hour_after_it_was_made() -> None:
    """Each order sends a check of itself to the future; orders that are paid by then are left alone."""
    coordinator, paid = Coordinator(), {2}
    for order in (1, 2, 3):
        coordinator.ask(add(new(order, delay_ms=HALF_HOUR_MS)))
        coordinator.advance(60_000)
    coordinator.advance(HALF_HOUR_MS - 3 * 60_000 - 1)
    coordinator.deliver()
    assert coordinator.values() == []
    coordinator.advance(1)
    coordinator.deliver()
    assert coordinator.values() == [1]
    coordinator.advance(2 * 60_000)
    coordinator.deliver()
    assert [order for order in coordinator.values() if order not in paid] == [1, 3]


# requirement: A5
def test_messages_move_in_the_order_of_their_times() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(3, at_ms=1_003_000), new(1, at_ms=1_001_000), new(2, at_ms=1_002_000)))
    coordinator.advance(10_000)
    coordinator.deliver()
    assert coordinator.values() == [1, 2, 3]


# requirement: A5
def test_a_time_in_the_past_is_due_at_once() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, at_ms=5)))
    coordinator.deliver()
    assert coordinator.values() == [1]


# requirement: A4
def test_no_delay_beyond_the_retention_of_its_topic() -> None:
    coordinator = Coordinator()
    assert isinstance(coordinator.ask(add(new(1, delay_ms=1_000), delay_ms_max=1_000)), Added)
    refused = coordinator.ask(add(new(2, delay_ms=1_001), delay_ms_max=1_000))
    assert isinstance(refused, InvalidRequest)
    assert refused.details["field"] == "delay"
    refused = coordinator.ask(add(new(2, at_ms=1_001_001), delay_ms_max=1_000))
    assert isinstance(refused, InvalidRequest)
    assert refused.details["field"] == "deliver_at"
    assert list(coordinator.committed.waiting) == [id_of(1)]


# requirement: A3
def test_a_repeated_request_adds_nothing() -> None:
    coordinator = Coordinator()
    first = coordinator.ask(add(new(1, delay_ms=1_000)))
    coordinator.wall_ms += 500
    assert coordinator.ask(add(new(1, delay_ms=1_000))) == first
    coordinator.advance(600)
    coordinator.deliver()
    coordinator.lead()
    assert coordinator.ask(add(new(1, delay_ms=1_000))) == first
    coordinator.advance(RECENT_MS - 1)
    coordinator.deliver()
    assert coordinator.values() == [1]


# requirement: A3
def test_the_first_message_needs_a_producer_id() -> None:
    coordinator = Coordinator()
    bare = Add(topic="orders", topic_id="orders", messages=(new(1, delay_ms=5),))
    assert coordinator.ask(bare) == NeedsProducerId()
    coordinator.ask(add(new(1, delay_ms=5)))
    coordinator.lead()
    bare = Add(topic="orders", topic_id="orders", messages=(new(2, delay_ms=5),))
    assert isinstance(coordinator.ask(bare), Added)


# requirement: A3
def test_a_cancelled_message_is_never_delivered_and_a_cancellation_may_be_repeated() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000), new(2, delay_ms=1_000)))
    assert coordinator.ask(Cancel(id=id_of(1))) == Done()
    coordinator.lead()
    assert coordinator.ask(Cancel(id=id_of(1))) == Done()
    assert isinstance(coordinator.ask(Read(id=id_of(1))), DelayedNotFound)
    coordinator.advance(1_000)
    coordinator.deliver()
    assert coordinator.values() == [2]
    assert isinstance(coordinator.ask(Cancel(id=id_of(3))), DelayedNotFound)


# requirement: A3
def test_messages_leave_a_full_disk_and_no_other_comes() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000), new(2, delay_ms=1_000), new(3, delay_ms=9_000)))
    coordinator.ask(create("s"))
    coordinator.has_room = False
    assert coordinator.ask(Cancel(id=id_of(1))) == Done()
    assert coordinator.ask(DeleteSchedule(id="s")) == Done()
    coordinator.advance(1_000)
    coordinator.deliver()
    assert coordinator.values() == [2]
    assert list(coordinator.committed.waiting) == [id_of(3)]
    for request in (add(new(4, delay_ms=1_000)), create("s"), Reschedule(id=id_of(3), when=When(delay_ms=5))):
        assert isinstance(coordinator.ask(request), StorageFull)
    assert coordinator.ask(add(new(3, delay_ms=9_000))) == Added((1_009_000,)), (
        "an equal request was carried out"
    )


# requirement: A3
def test_a_message_on_its_way_cannot_be_cancelled() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000)))
    coordinator.advance(1_000)
    assert described(coordinator, 1) == ("delivering", "")
    assert isinstance(coordinator.ask(Cancel(id=id_of(1))), DelayedAlreadyDelivered)
    later = Reschedule(id=id_of(1), when=When(delay_ms=5))
    assert isinstance(coordinator.ask(later), DelayedAlreadyDelivered)
    coordinator.deliver()
    assert isinstance(coordinator.ask(Cancel(id=id_of(1))), DelayedAlreadyDelivered)


# requirement: A3
@pytest.mark.parametrize("moved_ms", [500, 5_000])
def test_a_message_gets_another_time(moved_ms: int) -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000)))
    reply = coordinator.ask(Reschedule(id=id_of(1), when=When(delay_ms=moved_ms)))
    assert isinstance(reply, Found)
    assert reply.messages[0].waiting.due_ms == 1_000_000 + moved_ms
    coordinator.lead()
    coordinator.advance(moved_ms - 1)
    coordinator.deliver()
    assert coordinator.values() == []
    coordinator.advance(1)
    coordinator.deliver()
    coordinator.advance(10_000)
    coordinator.deliver()
    assert coordinator.values() == [1]
    assert not coordinator.committed.waiting


# requirement: A3
def test_a_message_that_is_cancelled_behind_a_batch_on_its_way_is_left_out() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000), new(2, delay_ms=1_001), new(3, delay_ms=1_002)))
    coordinator.advance(1_000)
    coordinator.advance(10)
    assert coordinator.ask(Cancel(id=id_of(2))) == Done()
    coordinator.deliver()
    assert coordinator.values() == [1, 3]


# requirement: A3
def test_a_batch_has_a_bounded_size() -> None:
    coordinator = Coordinator(bytes_max=1_000)
    coordinator.ask(add(*(new(number, delay_ms=1) for number in range(100))))
    coordinator.advance(1)
    assert len(coordinator.moves) == 1
    assert len(coordinator.moves[0].batch.ids) * 64 <= 1_000
    coordinator.deliver()
    assert coordinator.values() == list(range(100))
    many = Coordinator()
    many.ask(add(*(new(number, delay_ms=1) for number in range(MOVE_COUNT_MAX + 1))))
    many.advance(1)
    assert [len(move.batch.ids) for move in many.moves] == [MOVE_COUNT_MAX]


# requirement: A3
def test_a_message_for_a_deleted_topic_keeps_the_reason_and_may_get_another_time() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1)))
    coordinator.advance(1)
    move = coordinator.moves.pop()
    coordinator.decisions.refused(move, "no topic", is_gone=True, now_ms=0, wall_ms=coordinator.wall_ms)
    coordinator.commit()
    coordinator.lead()
    coordinator.advance(10_000)
    assert described(coordinator, 1) == ("failed", "no topic")
    assert coordinator.committed.lanes == {}
    coordinator.ask(Reschedule(id=id_of(1), when=When(delay_ms=0)))
    coordinator.deliver()
    assert coordinator.values() == [1]


# requirement: A3
def test_one_message_that_the_target_refuses_does_not_hold_back_the_others() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(*(new(number, delay_ms=1) for number in range(4))))
    coordinator.advance(1)
    while coordinator.moves:
        move = coordinator.moves.pop()
        if id_of(2) in move.batch.ids:
            now_ms = coordinator.wall_ms
            coordinator.decisions.refused(move, "too large", is_gone=False, now_ms=now_ms, wall_ms=now_ms)
        else:
            coordinator.targets[LANE].append(move, coordinator.wall_ms)
            coordinator.decisions.delivered(move, coordinator.wall_ms, coordinator.wall_ms)
        coordinator.commit()
    assert sorted(coordinator.values()) == [0, 1, 3]
    assert described(coordinator, 2) == ("failed", "too large")


# requirement: A3
def test_a_message_after_the_last_epoch_of_a_producer_is_delivered() -> None:
    coordinator = Coordinator()
    coordinator.decisions.state.lanes[LANE] = Lane(EPOCH_MAX, 0)
    coordinator.ask(add(new(1, delay_ms=0)))
    coordinator.deliver()
    coordinator.ask(add(new(2, delay_ms=0), new(3, delay_ms=0)))
    for _ in range(2):  # together, then the first alone
        move = coordinator.moves.pop()
        now_ms = coordinator.wall_ms
        coordinator.decisions.refused(
            move, "too large", is_gone=False, now_ms=now_ms, wall_ms=now_ms, new_producer_id=8
        )
        coordinator.commit()
    coordinator.deliver()
    coordinator.lead()
    coordinator.ask(add(new(4, delay_ms=0)))
    coordinator.deliver()
    assert coordinator.values() == [1, 3, 4]
    assert described(coordinator, 2) == ("failed", "too large")


# requirement: A3
def test_a_target_that_has_lost_its_producers_gets_the_batch_once() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1), new(2, delay_ms=2)))
    coordinator.advance(1)
    coordinator.deliver()
    coordinator.targets[LANE] = Target(
        coordinator.targets[LANE].delivered, epoch=0, window=[(3, 4)], producer_id=7
    )
    coordinator.advance(1)
    coordinator.deliver()
    assert coordinator.values() == [1, 2]


# requirement: A3
def test_so_many_messages_may_be_pending_and_no_more() -> None:
    coordinator = Coordinator(pending_max=8)
    for number, topic in enumerate(("a", "b", "c")):
        filled = add(new(10 + number, delay_ms=9), new(20 + number, delay_ms=9), topic=topic)
        assert isinstance(coordinator.ask(filled), Added)
    coordinator.ask(add(new(1, delay_ms=5), new(2, delay_ms=5)))
    refusal = coordinator.ask(add(new(3, delay_ms=5), topic="d"))
    assert isinstance(refusal, Overloaded)
    assert refusal.details["retry_after_ms"] == 1_000  # of the client that has to wait 5 ms
    assert isinstance(coordinator.ask(add(new(3, delay_ms=5))), QuotaExceeded)
    assert isinstance(coordinator.ask(add(new(2, delay_ms=5))), Added)
    coordinator.advance(5)
    coordinator.deliver()
    assert isinstance(coordinator.ask(add(new(3, delay_ms=5))), Added)


def room_in_ms(coordinator: Coordinator, topic: str, *, expected: type[Overloaded | QuotaExceeded]) -> int:
    """The refusal of one more message for a topic without room."""
    refusal = coordinator.ask(add(new(999, delay_ms=DAY_MS), topic=topic))
    assert type(refusal) is expected, refusal
    return int(str(refusal.details["retry_after_ms"]))


# requirement: N2
def test_a_topic_without_room_has_some_when_its_next_message_is_due() -> None:
    coordinator = Coordinator(pending_max=16)
    coordinator.ask(add(*(new(number, delay_ms=DAY_MS) for number in range(4)), topic="far"))
    coordinator.ask(add(new(10, delay_ms=5_000), *(new(11 + n, delay_ms=DAY_MS) for n in range(3))))
    assert room_in_ms(coordinator, "far", expected=QuotaExceeded) == 3_600_000, "not when others are due"
    assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == 5_000
    coordinator.advance(2_000)
    assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == 3_000
    coordinator.advance(3_000)
    assert [move.batch.ids for move in coordinator.moves] == [(id_of(10),)]
    for _ in range(2):
        assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == 1_000, "it is on its way"
        coordinator.advance(60_000)
    coordinator.deliver()
    assert isinstance(coordinator.ask(add(new(14, delay_ms=DAY_MS))), Added)
    assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == 3_600_000


# requirement: N2
def test_a_topic_whose_messages_have_failed_looks_again_for_room() -> None:
    """They leave when somebody cancels them, or their topic is found to be gone: no time says when."""
    coordinator = Coordinator(pending_max=16)
    coordinator.ask(add(*(new(number, delay_ms=5) for number in range(4))))
    coordinator.advance(5)
    while coordinator.moves:
        move, now_ms = coordinator.moves.pop(), coordinator.wall_ms
        coordinator.decisions.refused(move, "no", is_gone=True, now_ms=now_ms, wall_ms=now_ms)
        coordinator.commit()
    assert coordinator.committed.failures.of("orders") == 4
    assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == RECHECK_MS


# requirement: N2
def test_a_coordinator_without_room_has_some_when_any_message_is_due() -> None:
    coordinator = Coordinator(pending_max=16)
    for topic in range(4):
        filled = (new(10 * topic + number, delay_ms=DAY_MS) for number in range(topic and 4))
        coordinator.ask(add(*filled, topic=f"topic-{topic}"))
    coordinator.ask(add(*(new(number, delay_ms=60_000 - number) for number in range(4)), topic="topic-0"))
    assert room_in_ms(coordinator, "other", expected=Overloaded) == 59_997
    coordinator.ask(Cancel(id=id_of(3)))
    coordinator.ask(add(new(4, delay_ms=DAY_MS), topic="topic-0"))
    coordinator.advance(60_000)
    assert room_in_ms(coordinator, "other", expected=Overloaded) == 1_000


# requirement: N2
def test_messages_that_have_failed_make_no_room_by_themselves() -> None:
    coordinator = Coordinator(pending_bytes_max=4 * 2 * (RECORD_BYTES + 10))
    coordinator.ask(add(new(10, delay_ms=1), new(11, delay_ms=1)))
    coordinator.advance(1)
    coordinator.decisions.refused(
        coordinator.moves.pop(), "gone", is_gone=True, now_ms=coordinator.wall_ms, wall_ms=coordinator.wall_ms
    )
    coordinator.commit()
    assert described(coordinator, 10) == ("failed", "gone")
    assert room_in_ms(coordinator, "orders", expected=QuotaExceeded) == RECHECK_MS


# requirement: A3
def test_messages_are_listed_by_id_and_topic() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(*(new(number, delay_ms=5) for number in (3, 1, 2))))
    coordinator.ask(add(new(4, delay_ms=5), topic="other"))
    reply = coordinator.ask(ReadMany(topic="orders", after=id_of(1), count_max=9))
    assert isinstance(reply, Found)
    assert [one.id for one in reply.messages] == [id_of(2), id_of(3)]
    reply = coordinator.ask(ReadMany(topic=None, after=b"", count_max=2))
    assert isinstance(reply, Found)
    assert [one.id for one in reply.messages] == [id_of(1), id_of(2)]


# requirement: A3
def test_a_clock_that_jumps_is_noticed_soon_and_nothing_is_early() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=HALF_HOUR_MS)))
    asked_at = coordinator.wall_ms
    assert coordinator.decisions.next_deadline_ms() - asked_at <= 1_000
    coordinator.decisions.tick(asked_at, asked_at - 60_000)  # back
    coordinator.decisions.tick(asked_at + 1, asked_at + HALF_HOUR_MS)
    coordinator.wall_ms += HALF_HOUR_MS
    coordinator.deliver()
    assert coordinator.values() == [1]


# requirement: A3
def test_a_clock_that_goes_back_loses_no_message_behind_a_batch() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, delay_ms=1_000), new(2, delay_ms=1_001)))
    coordinator.advance(1_000)
    coordinator.advance(1)
    assert [move.batch.ids for move in coordinator.moves] == [(id_of(1),)]
    coordinator.wall_ms -= 1
    coordinator.deliver()
    assert coordinator.values() == [1]
    coordinator.advance(1)
    coordinator.deliver()
    assert coordinator.values() == [1, 2]


# requirement: A3
@pytest.mark.parametrize("seed", range(40))
def test_each_message_arrives_once_whatever_leaders_do(seed: int) -> None:
    """Leaders die between any two of their steps; batches of dead leaders arrive late; answers are lost."""
    rng = Random(seed)
    coordinator = Coordinator()
    due: dict[int, int] = {}
    cancelled: set[int] = set()
    for _ in range(120):
        step = rng.randrange(8)
        number = len(due)
        if step == 0:
            count = rng.randrange(1, 5)
            some = range(number, number + count)
            requests = add(*(new(one, partition=one % 2, delay_ms=rng.randrange(50)) for one in some))
            reply = coordinator.ask(requests)
            assert isinstance(reply, Added)
            due |= dict(zip(some, reply.due_ms, strict=True))
        elif step == 1 and due:
            one = rng.randrange(number)
            if coordinator.ask(Cancel(id=id_of(one))) == Done():
                cancelled.add(one)
        elif step == 2 and due:
            one = rng.randrange(number)
            reply = coordinator.ask(Reschedule(id=id_of(one), when=When(delay_ms=rng.randrange(50))))
            if isinstance(reply, Found):
                due[one] = reply.messages[0].waiting.due_ms
        elif step == 3:
            coordinator.wall_ms += rng.randrange(20)
            coordinator.decisions.tick(coordinator.wall_ms, coordinator.wall_ms)
            coordinator.commit(rng.choice([None, None, 0, 1, 2, 3]))
        elif step == 7 and coordinator.late:
            move = rng.choice(coordinator.late)
            with suppress(OutOfOrderSequence):  # so late that it is not remembered
                coordinator.targets[move.lane].append(move, coordinator.wall_ms)
        elif coordinator.moves:
            move = rng.choice(coordinator.moves)
            coordinator.targets[move.lane].append(move, coordinator.wall_ms)
            if step > 4:
                coordinator.moves.remove(move)
                coordinator.decisions.delivered(move, coordinator.wall_ms, coordinator.wall_ms)
                coordinator.commit(rng.choice([None, None, 0, 1, 2]))
    coordinator.advance(100)
    coordinator.deliver()
    arrived = [(at_ms, id_) for target in coordinator.targets.values() for at_ms, id_ in target.delivered]
    assert sorted(id_ for _, id_ in arrived) == sorted(id_of(one) for one in due if one not in cancelled)
    for at_ms, id_ in arrived:
        assert at_ms >= due[int.from_bytes(id_, "big")]
    assert not coordinator.committed.waiting


# requirement: A3
@pytest.mark.parametrize("seed", range(20))
def test_a_compacted_log_adds_up_to_the_same_messages(seed: int) -> None:
    """Whatever a round of compaction leaves out; how a message left is known, too."""
    rng = Random(seed)
    coordinator = Coordinator()
    coordinator.ask(add(*(new(number, delay_ms=rng.randrange(50)) for number in range(30))))
    for _ in range(20):
        coordinator.ask(Cancel(id=id_of(rng.randrange(30))))
        coordinator.ask(Reschedule(id=id_of(rng.randrange(30)), when=When(delay_ms=rng.randrange(50))))
        coordinator.wall_ms += rng.randrange(3)
        coordinator.decisions.tick(coordinator.wall_ms, coordinator.wall_ms)
        coordinator.commit()
        if rng.random() < 0.3:
            coordinator.deliver()
    replayed = coordinator.replayed(compacted_to=rng.randrange(coordinator.end_offset))
    committed = coordinator.committed
    assert replayed.waiting == committed.waiting
    changed = [list(map(state.waiting.is_changed, committed.waiting)) for state in (replayed, committed)]
    assert changed[0] == changed[1]
    assert replayed.failed == committed.failed
    assert (replayed.lanes, replayed.producer_id) == (committed.lanes, committed.producer_id)
    assert list(replayed.recent.items()) == list(committed.recent.items())
    assert replayed.snapshot() == committed.snapshot()


# requirement: A3
def test_a_state_is_the_same_after_its_snapshot() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(*(new(number, delay_ms=number) for number in range(10))))
    coordinator.ask(Cancel(id=id_of(9)))
    coordinator.ask(Reschedule(id=id_of(8), when=When(delay_ms=100)))
    coordinator.advance(3)
    coordinator.deliver()
    restored = DelayedState()
    restored.restore(coordinator.committed.snapshot())
    assert restored.snapshot() == coordinator.committed.snapshot()
    assert restored.waiting == coordinator.committed.waiting
    assert all(one.offset >= 0 for one in restored.waiting.values())
