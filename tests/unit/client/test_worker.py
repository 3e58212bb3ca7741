"""A worker: which call begins, what may be committed, when a retry is due, and rebalances while calls run."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.messages import Message
from raftlog.client.worker.calls import CoroutineCalls, ThreadCalls
from raftlog.client.worker.core import Progress
from raftlog.client.worker.lanes import Lanes
from raftlog.client.worker.options import Backoff, WorkerSettings, worker_options
from raftlog.errors import ConnectionLost, NotSent, Overloaded, RecordTooLarge, TopicNotFound
from raftlog.records.failures import FailedRecord
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_time import eventually
from tests.helpers.worker_world import World


def message(offset: int) -> Message:
    return Message("t", 0, offset, 0, None, b"", (), 0)


# requirement: D2
@given(st.lists(st.integers(0, 3), max_size=40), st.randoms(use_true_random=True))
def test_a_lane_runs_one_item_at_a_time_and_in_order(lanes: list[int], rng: random.Random) -> None:
    waiting, running, seen = Lanes[tuple[int, int]](), list[tuple[int, int]](), list[tuple[int, int]]()
    arriving = deque(enumerate(lanes))
    while arriving or len(waiting) or running:
        if arriving and rng.random() < 0.5:
            number, lane = arriving.popleft()
            waiting.add(lane, (lane, number))
        elif rng.random() < 0.5:
            item = waiting.begin()
            if item is not None:
                assert item[0] not in {lane for lane, _ in running}
                running.append(item)
                seen.append(item)
            else:
                assert {lane for lane, _ in running} or not len(waiting)
        elif running:
            lane, _ = running.pop(rng.randrange(len(running)))
            waiting.end(lane)
    for lane in range(4):
        assert [item for item in seen if item[0] == lane] == [
            (lane, number) for number, each in enumerate(lanes) if each == lane
        ]


def test_what_is_forgotten_does_not_begin_and_its_lane_stays_busy() -> None:
    lanes = Lanes[str]()
    lanes.add("k", "first")
    lanes.add("k", "second")
    assert lanes.begin() == "first"
    lanes.clear()
    lanes.add("k", "after a rebalance")
    assert lanes.begin() is None  # the first one still runs
    lanes.end("k")
    assert lanes.begin() == "after a rebalance"
    assert len(lanes) == 0


# requirement: D2
@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_nothing_is_committed_behind_a_record_that_is_not_handled(
    gaps: list[int], rng: random.Random
) -> None:
    offsets = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    progress = Progress()
    for offset in offsets:
        progress.add(message(offset))
    committed, open_offsets = 0, set(offsets)
    for offset in rng.sample(offsets, len(offsets)):
        last = progress.handled(offset)
        open_offsets.discard(offset)
        committed = committed if last is None else last.offset + 1
        assert committed <= min(open_offsets, default=offsets[-1] + 1)
    assert committed == offsets[-1] + 1


# requirement: A7
def test_pauses_double_up_to_the_longest_and_are_shortened_by_half_at_most() -> None:
    backoff, rng = Backoff("1s", max="10s", attempts=9), random.Random(1)
    for attempts, longest_ms in (1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 10_000), (900, 10_000):
        pauses = [backoff.pause_ms(attempts, rng) for _ in range(200)]
        assert longest_ms / 2 <= min(pauses) < longest_ms * 0.6
        assert longest_ms * 0.9 < max(pauses) <= longest_ms
    assert backoff.longest_ms == 10_000
    assert Backoff("1s", attempts=3).longest_ms == 2_000
    assert Backoff("1s", attempts=1).longest_ms == 0


# requirement: D4
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"order": "random"}, "order is 'random'; choose 'key', 'partition', 'none'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 1001}, "concurrency is 1001; at most 1000"),
        ({"retry": 5}, "retry is 5; give Backoff"),
        ({"delivery": "at_most_once", "dead_letter": True}, "delivery is 'at_most_once'"),
        ({"delivery": "at_most_once", "retry": Backoff()}, "delivery is 'at_most_once'"),
        ({"delivery": "exactly_once"}, "delivery is 'exactly_once'; use the batches"),
        ({"delivery": "twice"}, "delivery is 'twice'"),
        ({"close_timeout": "0s"}, "close_timeout"),
    ],
)
def test_a_wrong_option_is_named(settings: WorkerSettings, named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        worker_options("orders", **{"group": "g"} | settings)


@pytest.mark.parametrize(
    ("first", "longest", "attempts", "named"),
    [
        ("0s", "1s", 1, "first"),
        ("2s", "1s", 1, "max"),
        ("1s", "2s", 0, "attempts"),
        ("1s", "2s", 1001, "attempts"),
    ],
)
def test_a_wrong_backoff_is_named(first: str, longest: str, attempts: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Backoff(first, max=longest, attempts=attempts)


def test_a_worker_with_dead_letters_consumes_its_retry_topics_too() -> None:
    options = worker_options(["orders", "refunds"], group="mail", dead_letter=True)
    assert options.consumer.topics == ("orders", "refunds", "orders.mail.retry", "refunds.mail.retry")
    assert worker_options("orders", group="mail").consumer.topics == ("orders",)


# requirement: G4 D2
async def test_a_rebalance_waits_for_calls_and_drops_what_has_not_begun() -> None:
    world = World()
    world.records.hand_out(0, 1, 2, 3)
    await world.begun(0, 1)
    world.records.begin_rebalance()
    world.handling.end(0)
    await eventually(lambda: world.records.acknowledged == [0])
    assert world.records.is_handling
    world.handling.end(1)
    await eventually(lambda: world.records.acknowledged == [0, 1])
    await eventually(lambda: not world.records.is_handling)
    await asyncio.sleep(5)
    assert world.handling.begun == [0, 1]
    world.records.hand_out(2, 3)  # still, or again, of this member
    await world.begun(0, 1, 2, 3)
    world.handling.end(3)
    await asyncio.sleep(1)
    assert world.records.acknowledged == [0, 1]  # 2 is not handled
    world.handling.end(2)
    assert await world.stop() is None
    assert world.records.acknowledged == [0, 1, 3]
    assert world.records.is_closed


# requirement: D2
async def test_a_call_of_an_earlier_assignment_acknowledges_nothing_in_a_later_one() -> None:
    world = World()
    world.records.hand_out(0)
    await world.begun(0)
    world.records.begin_rebalance()  # it does not wait for the call for ever; others go on to 5
    world.records.hand_out(0, 5)
    await world.begun(0, 5)
    world.handling.end(0)
    await world.begun(0, 5, 0)  # of the same record there is one call at a time
    assert world.records.acknowledged == []
    world.handling.end(0)
    await eventually(lambda: world.records.acknowledged == [0])
    world.running.cancel()


# requirement: A7
async def test_a_failed_record_is_acknowledged_only_when_it_is_stored() -> None:
    world = World(retry=Backoff("1s", attempts=2), dead_letter=True)
    world.refusals = [NotSent("no broker"), NotSent("no broker")]
    world.records.hand_out(0)
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    await eventually(lambda: world.records.acknowledged == [0])
    ((topic, _, record),) = world.stored
    assert topic == "t.g.retry"
    retried = FailedRecord.from_retry(record.key, record.value, record.headers, 0)
    assert (retried.attempts, retried.reason) == (1, "ValueError: bad")
    assert 500 <= world.delays_ms[0] <= 1_000  # a delayed message: nobody waits with it
    world.records.hand_out(9, topic="t.g.retry", headers=record.headers)
    await world.begun(0, 0)
    world.handling.end(0, ValueError("bad again"))
    await eventually(lambda: world.records.acknowledged == [0, 9])
    assert world.stored[1][0] == "t.g.dlq"
    assert world.delays_ms[1] == 0
    await world.stop()


# requirement: A7
@pytest.mark.parametrize("refusal", [Overloaded("full", retry_after_ms=1_000), ConnectionLost("no answer")])
async def test_a_record_waits_for_room_among_the_delayed_messages(refusal: Exception) -> None:
    world = World(retry=Backoff("10s", attempts=3))
    world.refusals = [refusal] * 5
    world.records.hand_out(0, 1)
    await world.begun(0, 1)
    world.handling.end(0, ValueError("bad"))
    world.handling.end(1)
    await eventually(lambda: not world.refusals)
    assert world.records.acknowledged == []  # 0 is stored nowhere
    await eventually(lambda: world.records.acknowledged == [1])
    assert [topic for topic, _, _ in world.stored] == ["t.g.retry"]
    assert 5_000 <= world.delays_ms[0] <= 10_000
    await world.stop()


# requirement: A7
async def test_a_record_that_is_too_large_to_be_delayed_is_tried_again_at_once() -> None:
    world = World(retry=Backoff("10s", attempts=3))
    world.refusals = [RecordTooLarge("8 MiB at most")]
    world.records.hand_out(0)
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    await eventually(lambda: world.records.acknowledged == [0])
    assert world.delays_ms == [0]
    await world.stop()


# requirement: A7
async def test_a_worker_whose_retry_topic_was_deleted_ends_and_acknowledges_nothing() -> None:
    world = World(retry=Backoff("10s", attempts=3))
    world.refusals = [TopicNotFound("there is no topic t.g.retry")]
    world.records.hand_out(0)
    await world.begun(0)
    world.handling.end(0, ValueError("bad"))
    assert isinstance(await world.running, TopicNotFound)
    assert world.records.acknowledged == []


async def test_stop_waits_for_calls_for_close_timeout_only() -> None:
    world = World(close_timeout="5s")
    world.records.hand_out(0, 1, 2)
    await world.begun(0, 1)
    world.handling.end(0)
    await eventually(lambda: 2 in world.handling.begun)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await world.stop() is None
    assert 5 <= loop.time() - began < 6
    assert world.records.acknowledged == [0]
    for call in world.handling.calls.values():
        call.cancel()


# requirement: A7
@pytest.mark.parametrize("colour", ["threads", "coroutines"])
@in_real_time
async def test_a_record_whose_call_cannot_begin_has_not_failed(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.new_event_loop()
    ended.close()

    async def handle(message: Message) -> None: ...

    calls = ThreadCalls(print, 1) if colour == "threads" else CoroutineCalls(handle, ended)
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)  # as once the main thread has ended
    world = World(calls, dead_letter=True)
    world.records.hand_out(0, 1)
    error = await world.running
    assert isinstance(error, RuntimeError)
    assert "the handler cannot be called" in str(error)
    assert not world.records.acknowledged
    assert not world.stored
