"""The parts of a worker that decide: which call begins, what may be committed, when a retry is due."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.messages import Message
from raftlog.client.worker.lanes import Lanes
from raftlog.client.worker.options import Backoff, WorkerSettings, worker_options
from raftlog.client.worker.progress import Progress


def message(offset: int) -> Message:
    return Message("t", 0, offset, 0, None, b"", (), 0)


# requirement: D2
@given(st.lists(st.integers(0, 3), max_size=40), st.randoms(use_true_random=False))
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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"order": "random"}, "order is 'random'; choose 'key', 'partition', 'none'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 1001}, "concurrency is 1001; at most 1000"),
        ({"retry": 5}, "retry is 5; give Backoff"),
        ({"delivery": "at_most_once", "dead_letter": True}, "delivery is 'at_most_once'"),
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
