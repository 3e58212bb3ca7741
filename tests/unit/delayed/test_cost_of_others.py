"""A request costs what it is about, however many messages other topics have."""

from __future__ import annotations

import pytest

from delayed import due_times
from delayed.due_times import LOOKED_AT_MAX
from delayed.records import LaneKey
from delayed.requests import Found, ReadMany
from raftlog.errors import Overloaded, QuotaExceeded
from tests.helpers.decided_delays import Coordinator, add, new
from tests.helpers.profiled import opcodes_of

# requirement: A3, N2

HOUR_MS = 3_600_000
FEW, MANY = 2_000, 4_000


def spread(number: int) -> int:
    """Numbers whose ids are in all shards."""
    return number * 0x9E3779B97F4A7C15 % (1 << 64) << 32


def with_others(count: int, *, pending_max: int = 8 * MANY) -> Coordinator:
    """So many messages of other topics, which are due in an hour, and three of ``rare`` before and behind."""
    coordinator = Coordinator(pending_max=pending_max)
    for first in range(0, count, 500):
        some = (new(spread(number), delay_ms=HOUR_MS) for number in range(first + 1, first + 501))
        coordinator.ask(add(*some, topic=f"topic-{first % 8}"))
    rare = [new(spread(-number), delay_ms=HOUR_MS + 1_000 * number) for number in range(3)]
    coordinator.ask(add(*rare, topic="rare"))
    return coordinator


def refused(coordinator: Coordinator) -> None:
    coordinator.decisions._frees_ms.clear()
    assert coordinator.decisions._retry_after_ms("topic-0") == HOUR_MS


def test_a_list_looks_at_no_shard_without_messages_of_its_topic() -> None:
    coordinator = with_others(FEW)
    waiting = coordinator.decisions.state.waiting
    rare = waiting.behind(b"", "rare", 100)
    assert len(rare) == 3
    for number, shard in enumerate(waiting._shards):
        if number not in {id_[0] for id_ in rare}:
            del shard.target
    found = coordinator.ask(ReadMany(topic="rare", after=b"", count_max=100))
    assert isinstance(found, Found)
    assert [each.id for each in found.messages] == rare
    assert waiting.behind(rare[-1], "rare", 100) == []


def test_a_refusal_costs_next_to_nothing_for_many_messages() -> None:
    few, many = (with_others(count) for count in (FEW, MANY))
    before, after = opcodes_of(lambda: refused(few)), opcodes_of(lambda: refused(many))
    assert after - before < (MANY - FEW) // 8


def test_messages_on_their_way_cost_metrics_nothing_beside_their_lanes() -> None:
    def counted(count: int) -> int:
        coordinator = Coordinator()
        coordinator.ask(add(*(new(number, delay_ms=1_000 - number) for number in range(1, count + 1))))
        coordinator.advance(1_000)
        assert len(coordinator.moves) == 1
        counts = coordinator.decisions.counts()
        assert (counts.due, counts.oldest_ms) == (count, coordinator.wall_ms - count)
        return opcodes_of(coordinator.decisions.counts)

    assert counted(300) == counted(100)


def test_a_topic_whose_messages_are_all_due_later_is_told_an_earlier_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time that a refusal tells is never too late, and takes so many looks at most."""
    monkeypatch.setattr(due_times, "LOOKED_AT_MAX", 10)
    coordinator = Coordinator(pending_max=40)
    coordinator.ask(add(*(new(number, delay_ms=60_000) for number in range(1, 10))))
    coordinator.ask(add(*(new(100 + number, delay_ms=HOUR_MS) for number in range(10)), topic="late"))
    refusal = coordinator.ask(add(new(999, delay_ms=5), topic="late"))
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.details["retry_after_ms"] == HOUR_MS
    monkeypatch.setattr(due_times, "LOOKED_AT_MAX", 5)
    coordinator.decisions._frees_ms.clear()
    refusal = coordinator.ask(add(new(999, delay_ms=5), topic="late"))
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.details["retry_after_ms"] == 60_000
    assert LOOKED_AT_MAX > 10


def test_a_message_that_is_due_makes_room_soon() -> None:
    coordinator = Coordinator(pending_max=8)
    coordinator.ask(add(new(1, delay_ms=5), new(2, delay_ms=HOUR_MS)))
    coordinator.advance(5)
    assert [move.lane for move in coordinator.moves] == [LaneKey("orders", 0)]
    refusal = coordinator.ask(add(new(3, delay_ms=HOUR_MS)))
    assert isinstance(refusal, QuotaExceeded | Overloaded)
    assert refusal.details["retry_after_ms"] == 1_000
