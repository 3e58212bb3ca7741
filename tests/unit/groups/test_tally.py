"""The counts of a coordinator, and samples of the lag."""

from __future__ import annotations

import asyncio
import logging

import pytest

from groups.lag_samples import SAMPLE_S, LagSamples, Row
from groups.ports import Extent
from groups.records import CommittedOffset
from groups.requests import DeleteGroup, Done
from groups.tally import OTHER, Tally, kind_of
from raftlog.errors import NoLeader
from raftlog.hosting.known_topics import KnownTopics
from raftlog.testing.shifted_clock import ShiftedClock
from tests.helpers.group_coordination import SESSION_MS, CoordinatedGroups


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4})


def plan_again(groups: CoordinatedGroups, member: str) -> None:
    """The member, alone, completes the rebalance that is under way."""
    groups.join(member, generation=groups.committed.groups["g"].generation)
    groups.sync(member, groups.committed.groups["g"].generation, is_auto=True)


def counted(groups: CoordinatedGroups) -> dict[str, int]:
    return dict(groups.tally.rebalances["g"])


def test_rebalances_are_counted_by_their_reason(groups: CoordinatedGroups) -> None:
    groups.stable("a", "b")
    assert counted(groups) == {"joined": 1}  # the plan of a alone was never made
    groups.leave("b")
    plan_again(groups, "a")
    groups.set_partitions("orders", 5)
    plan_again(groups, "a")
    plan_again(groups, "a")
    groups.join("a", "orders", "payments", generation=groups.committed.groups["g"].generation)
    groups.sync("a", groups.committed.groups["g"].generation, is_auto=True)
    assert counted(groups) == {"joined": 1, "left": 1, "partitions": 1, "requested": 1, "subscription": 1}


def test_members_that_time_removes_are_counted(groups: CoordinatedGroups) -> None:
    groups.stable("a", "b")
    groups.after(SESSION_MS + 1)
    assert groups.tally.members_expired == 2


def test_a_member_that_leaves_has_not_expired(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.leave("a")
    assert groups.tally.members_expired == 0


def test_each_committed_offset_counts_and_a_late_one_does_not(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.commit(Done, 9, member="a", generation=generation)
    groups.commit(Done, 5, member="a", generation=generation)
    groups.commit(Done, 7, group="other")
    assert groups.tally.offsets_committed == 2


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("member a left", "left"),
        ("member a left joined", "joined"),
        ("member a\nb joined", "joined"),
        ("leader a sent no plan", "no_plan"),
        ("the session of member a expired", "expired"),
        ("member a took the place of b", "replaced"),
        ("topic orders was created again", "created_again"),
        ("withheld partitions were not revoked", "withheld"),
        ("the coordinator changed", "coordinator"),
        ("something new", OTHER),
    ],
)
def test_kinds_of_reasons(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind


def test_a_deleted_group_has_no_counters(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.leave("a")
    groups.ask(DeleteGroup(group="g"), Done)
    assert groups.tally == Tally()


class Topics:
    """One topic. ``asked`` has what was asked for, in order."""

    def __init__(self) -> None:
        self.start = 0
        self.ends = {0: 10, 1: 20}
        self.asked: list[tuple[str, int]] = []
        self.known = KnownTopics({"orders": 2})

    def topic_id(self, topic: str) -> str | None:
        return "t1" if topic == "orders" else None

    async def exists(self, topic: str, topic_id: str) -> bool:
        return self.topic_id(topic) == topic_id

    async def end(self, topic: str, partition: int) -> int:
        return (await self.extent(topic, partition)).end

    async def extent(self, topic: str, partition: int) -> Extent:
        self.asked.append(("end", partition))
        if partition not in self.ends:
            raise NoLeader("no leader", retry_after_ms=1)
        return Extent(self.start, self.ends[partition])

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        self.asked.append(("first", offset))
        return offset, 1_000


def committed(offset: int, topic_id: str = "t1") -> CommittedOffset:
    return CommittedOffset(offset=offset, topic_id=topic_id)


def row(group: str = "g", partition: int = 0) -> Row:
    return group, "orders", partition


def test_groups_share_the_end_and_times_are_kept_until_the_offset_moves() -> None:
    topics = Topics()
    samples = LagSamples(topics, ShiftedClock())
    rows = [(row(group), committed(4)) for group in ("a", "b")]
    asyncio.run(samples.measure(rows))
    assert sorted(topics.asked) == [("end", 0), ("first", 4), ("first", 4)]
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


class UnreadableTopics(Topics):
    """Records that no code has thought of, at offset 4 and in all of partition 1."""

    async def extent(self, topic: str, partition: int) -> Extent:
        if partition == 1:
            raise MemoryError
        return await super().extent(topic, partition)

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        if offset == 4:
            raise ValueError("a record")
        return await super().first_record(topic, partition, offset)


def test_a_group_that_cannot_be_read_costs_no_other_group_its_lag(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.groups")
    samples = LagSamples(UnreadableTopics(), ShiftedClock())
    rows = [(row("bad"), committed(4)), (row("good", 1), committed(3)), (row("good"), committed(7))]
    asyncio.run(samples.measure(rows))
    assert [samples.lag_of(*each) is None for each in rows] == [True, True, False]


def test_a_commit_after_the_sample_lowers_the_lag() -> None:
    samples = LagSamples(Topics(), ShiftedClock())
    asyncio.run(samples.measure([(row(), committed(4))]))
    found = samples.lag_of(row(), committed(7))
    assert found is not None
    assert found[0] == 3


def test_deleted_records_are_no_lag_also_after_the_first_sample() -> None:
    topics = Topics()
    samples = LagSamples(topics, ShiftedClock())
    for start, lag in ((0, 6), (8, 2), (10, 0)):
        topics.start = start
        asyncio.run(samples.measure([(row(), committed(4))]))
        assert (samples.lag_of(row(), committed(4)) or (None,))[0] == lag
    assert [asked for asked in topics.asked if asked[0] == "first"] == [("first", 4), ("first", 8)]


def test_an_offset_that_was_set_back_has_its_own_first_record() -> None:
    topics = Topics()
    samples = LagSamples(topics, ShiftedClock())
    for offset, lag in ((7, 3), (2, 8)):
        asyncio.run(samples.measure([(row(), committed(offset))]))
        assert (samples.lag_of(row(), committed(offset)) or (None,))[0] == lag


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
