"""Samples of the lag: what is asked for, and how often."""

from __future__ import annotations

import asyncio

from groups.lag_samples import SAMPLE_S, LagSamples, Row
from groups.ports import KnownTopics
from groups.records import CommittedOffset
from raftlog.errors import NoLeader
from raftlog.testing.shifted_clock import ShiftedClock


class Topics:
    """One topic. ``asked`` has what was asked for, in order."""

    def __init__(self) -> None:
        self.ends = {0: 10, 1: 20}
        self.asked: list[tuple[str, int]] = []
        self.known = KnownTopics({"orders": 2})

    def topic_id(self, topic: str) -> str | None:
        return "t1" if topic == "orders" else None

    async def exists(self, topic: str, topic_id: str) -> bool:
        return self.topic_id(topic) == topic_id

    async def end(self, topic: str, partition: int) -> int:
        self.asked.append(("end", partition))
        if partition not in self.ends:
            raise NoLeader("no leader", retry_after_ms=1)
        return self.ends[partition]

    async def time_of(self, topic: str, partition: int, offset: int) -> int | None:
        self.asked.append(("time", offset))
        return 1_000


def committed(offset: int, topic_id: str = "t1") -> CommittedOffset:
    return CommittedOffset(offset=offset, topic_id=topic_id)


def row(group: str = "g", partition: int = 0) -> Row:
    return group, "orders", partition


def test_groups_share_the_end_and_times_are_kept_until_the_offset_moves() -> None:
    topics = Topics()
    samples = LagSamples(topics, ShiftedClock())
    rows = [(row(group), committed(4)) for group in ("a", "b")]
    asyncio.run(samples.measure(rows))
    assert sorted(topics.asked) == [("end", 0), ("time", 4), ("time", 4)]
    topics.asked.clear()
    asyncio.run(samples.measure(rows))
    assert topics.asked == [("end", 0)]
    found = samples.lag_of(row("a"), committed(4))
    assert found is not None
    assert found[0] == 6
    assert found[1] > 1_000


def test_a_group_at_the_end_has_no_lag_and_asks_for_no_time() -> None:
    topics = Topics()
    samples = LagSamples(topics, ShiftedClock())
    asyncio.run(samples.measure([(row(), committed(10))]))
    assert samples.lag_of(row(), committed(10)) == (0, 0.0)
    assert topics.asked == [("end", 0)]


def test_what_is_not_known_has_no_sample() -> None:
    topics = Topics()
    del topics.ends[1]
    samples = LagSamples(topics, ShiftedClock())
    asyncio.run(samples.measure([(row(partition=1), committed(3)), (row(), committed(3, "earlier topic"))]))
    assert samples.lag_of(row(partition=1), committed(3)) is None
    assert samples.lag_of(row(), committed(3, "earlier topic")) is None


def test_a_commit_after_the_sample_lowers_the_lag() -> None:
    samples = LagSamples(Topics(), ShiftedClock())
    asyncio.run(samples.measure([(row(), committed(4))]))
    found = samples.lag_of(row(), committed(7))
    assert found is not None
    assert found[0] == 3


def test_scrapes_in_a_row_measure_once() -> None:
    async def scrapes() -> list[tuple[str, int]]:
        topics, clock = Topics(), ShiftedClock()
        samples = LagSamples(topics, clock)
        first = samples.want([(row(), committed(10))])
        assert first is not None
        assert samples.want([(row(), committed(10))]) is None
        await first
        assert samples.want([(row(), committed(10))]) is None
        clock.passed_ms = int(SAMPLE_S * 1000)
        later = samples.want([(row(), committed(10))])
        assert later is not None
        await later
        return topics.asked

    assert asyncio.run(scrapes()) == [("end", 0), ("end", 0)]
