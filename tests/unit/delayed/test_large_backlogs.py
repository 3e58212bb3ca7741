"""What many pending, failed or due messages do to a coordinator of delayed messages."""

from __future__ import annotations

import asyncio

import pytest

from delayed import due_times
from delayed.lanes import SWEEP_MS
from delayed.records import LaneKey
from delayed.requests import Added, Cancel, Done, Found, Reschedule, When
from delayed.room import MoveRoom
from raftlog.errors import Overloaded, QuotaExceeded
from tests.helpers.decided_delays import Coordinator, Target, add, id_of, new

LANE = LaneKey("orders", 0)
SHIFT = 88  # so that numbers are in different shards


def fail_all(coordinator: Coordinator) -> None:
    """The topic of all messages that are due was deleted."""
    while coordinator.moves:
        now_ms = coordinator.wall_ms
        move = coordinator.moves.pop()
        coordinator.decisions.refused(move, "deleted", is_gone=True, now_ms=now_ms, wall_ms=now_ms)
        coordinator.commit()


def coordinator_with(count: int, pending_max: int) -> Coordinator:
    """Messages 1 to ``count``, which are due in 5 ms."""
    coordinator = Coordinator(pending_max=pending_max)
    reply = coordinator.ask(add(*(new(number, delay_ms=5) for number in range(1, count + 1))))
    assert isinstance(reply, Added)
    return coordinator


# requirement: A3
def test_failed_messages_do_not_use_up_the_room_of_pending_ones() -> None:
    coordinator = coordinator_with(2, pending_max=8)
    coordinator.advance(5)
    fail_all(coordinator)
    for number in range(4):
        two = new(10 + number, delay_ms=5), new(20 + number, delay_ms=5)
        assert isinstance(coordinator.ask(add(*two, topic=f"live-{number}")), Added)
    assert isinstance(coordinator.ask(add(new(5, delay_ms=5), topic="live")), Overloaded)


# requirement: A3
def test_failed_messages_are_bounded_too() -> None:
    """Otherwise a topic that is deleted again and again would fill the memory."""
    coordinator = Coordinator(pending_max=8)
    for first in (1, 3, 5, 7):
        two = new(first, delay_ms=5), new(first + 1, delay_ms=5)
        assert isinstance(coordinator.ask(add(*two, topic=f"gone-{first}")), Added)
        coordinator.advance(5)
        fail_all(coordinator)
    assert isinstance(coordinator.ask(add(new(9, delay_ms=5), topic="gone-1")), QuotaExceeded)
    refusal = coordinator.ask(add(new(9, delay_ms=5), topic="live"))
    assert isinstance(refusal, Overloaded)
    assert "8 failed" in str(refusal)
    for number in (1, 2):
        assert coordinator.ask(Cancel(id=id_of(number))) == Done()
    assert isinstance(coordinator.ask(add(new(9, delay_ms=5), topic="live")), Added)


# requirement: A3
def test_idle_lanes_of_partitions_that_are_gone_are_removed() -> None:
    coordinator = coordinator_with(1, pending_max=9)
    coordinator.advance(5)
    coordinator.deliver()
    coordinator.decisions.tick(coordinator.wall_ms + SWEEP_MS, coordinator.wall_ms)
    coordinator.commit()
    (sweep,) = coordinator.sweeps
    assert set(sweep.lanes) == {LANE}
    coordinator.decisions.gone(sweep, [LANE])
    coordinator.commit()
    assert coordinator.committed.lanes == {}


# requirement: A3
@pytest.mark.parametrize("is_delivered", [True, False])
def test_a_lane_that_was_used_since_a_sweep_stays(is_delivered: bool) -> None:
    """Another topic may have its name: a batch with an old sequence would be taken for a duplicate."""
    coordinator = coordinator_with(1, pending_max=9)
    coordinator.advance(5)
    coordinator.deliver()
    coordinator.decisions.tick(coordinator.wall_ms + SWEEP_MS, coordinator.wall_ms)
    coordinator.commit()
    (sweep,) = coordinator.sweeps
    coordinator.ask(add(new(2, delay_ms=0)))
    if is_delivered:
        coordinator.deliver()
    coordinator.decisions.gone(sweep, [LANE])
    coordinator.deliver()
    coordinator.ask(add(new(3, delay_ms=0)))
    coordinator.deliver()
    assert coordinator.values() == [1, 2, 3]


# requirement: A3
def test_a_lane_with_the_same_numbers_of_another_topic_stays() -> None:
    """The topic was deleted, created and used as much as before, all during the sweep."""
    coordinator = coordinator_with(1, pending_max=9)
    coordinator.advance(5)
    coordinator.deliver()
    coordinator.decisions.tick(coordinator.wall_ms + SWEEP_MS, coordinator.wall_ms)
    coordinator.commit()
    (sweep,) = coordinator.sweeps
    coordinator.ask(add(new(2, delay_ms=0)))
    fail_all(coordinator)
    coordinator.targets[LANE] = Target()
    coordinator.ask(add(new(3, delay_ms=0)))
    coordinator.deliver()
    assert coordinator.committed.lanes[LANE] == sweep.lanes[LANE]
    coordinator.decisions.gone(sweep, [LANE])
    coordinator.commit()
    coordinator.ask(add(new(4, delay_ms=0)))
    coordinator.deliver()
    assert coordinator.values() == [3, 4]


# requirement: A3
def test_times_of_messages_that_have_left_or_changed_are_not_kept() -> None:
    coordinator = Coordinator(pending_max=12)
    coordinator.ask(add(new(0, delay_ms=1_000_000), new(1, delay_ms=2_000_000)))
    for step in range(2 * due_times.STALE_MIN):
        coordinator.ask(Reschedule(id=id_of(0), when=When(at_ms=coordinator.wall_ms + 1_000_000 + step)))
        coordinator.ask(add(new(2 + step, delay_ms=3_000_000)))
        assert coordinator.ask(Cancel(id=id_of(2 + step))) == Done()
    assert len(coordinator.decisions._lanes._due._heap) <= due_times.STALE_MIN + 10
    for _ in range(3):
        coordinator.advance(1_000_000 + 2 * due_times.STALE_MIN)
        coordinator.deliver()
    assert coordinator.values() == [0, 1]


# requirement: A3
def test_a_new_leader_takes_in_its_messages_in_slices_and_delivers_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(due_times, "SLICE", 10)
    coordinator = Coordinator()
    first, last, other = 1 << SHIFT, 100 << SHIFT, 99 << SHIFT
    due = {number << SHIFT: 7 * number % 101 for number in range(1, 101)}
    coordinator.ask(add(*(new(number, at_ms=1_000_000 + at_ms) for number, at_ms in due.items())))
    coordinator.wall_ms += 200
    coordinator.lead()
    for _ in range(6):
        assert coordinator.decisions.next_deadline_ms() == coordinator.wall_ms
        coordinator.advance(0)
        assert not coordinator.moves, "an earlier one may not be known yet"
    for number in (first, last):  # one of a slice that was read, and one of a slice that was not
        reply = coordinator.ask(Reschedule(id=id_of(number), when=When(at_ms=1_000_000)))
        assert isinstance(reply, Found)
        due[number] = 0
    assert coordinator.ask(Cancel(id=id_of(other))) == Done()
    del due[other]
    for _ in range(20):
        coordinator.advance(0)
    coordinator.deliver()
    found = coordinator.values()
    assert [due[number] for number in found] == sorted(due.values())
    assert sorted(found) == sorted(due)


# requirement: A3
async def test_batches_wait_for_room_and_those_without_a_leader_hold_back_nobody_else() -> None:
    room = MoveRoom(100)
    held = held_max = 0

    async def move(size_bytes: int, seconds: float, *, is_repeated: bool) -> float:
        nonlocal held, held_max
        async with room.held(size_bytes, is_repeated=is_repeated):
            held += min(size_bytes, 100)
            held_max = max(held_max, held)
            await asyncio.sleep(seconds)
            held -= min(size_bytes, 100)
        return asyncio.get_running_loop().time()

    stuck = [asyncio.create_task(move(60, 1_000, is_repeated=True)) for _ in range(5)]
    first = [asyncio.create_task(move(40, 1, is_repeated=False)) for _ in range(6)]
    large = asyncio.create_task(move(500, 1, is_repeated=False))
    given_up = asyncio.create_task(move(100, 1, is_repeated=False))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await asyncio.gather(*first) == [1, 1, 2, 2, 3, 3]
    assert await large == 4, "it goes alone"
    assert held_max == 100 + 60
    assert await move(100, 0, is_repeated=False) == 4
    for task in stuck:
        task.cancel()
