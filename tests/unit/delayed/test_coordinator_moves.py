"""How a coordinator moves batches while its log or its targets refuse them. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence, Set
from typing import ClassVar

import pytest

from delayed.coordinator import DelayedCoordinator
from delayed.decisions import Decisions
from delayed.records import Lane, LaneKey, Message
from delayed.requests import Added, Moving, ReadMoving, Request
from delayed.values import Move, TopicKey
from raftlog.errors import CommitUnknown, NotLeader, Overloaded, RaftlogError
from raftlog.records.batch import EPOCH_MAX, Batch
from tests.helpers.decided_delays import add, id_of, new
from tests.helpers.instant_delays import Refusing, coordinator_of
from tests.helpers.instant_groups import FullLog, InstantLog
from tests.helpers.virtual_time import VirtualClock

LANE = LaneKey("orders", 0)


class Unreadable(Refusing):
    """Its first reads fail as no test of its errors expects."""

    def __init__(self) -> None:
        super().__init__(is_too_large=False)
        self.reads = 0

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """Three times it raises what is no ``RaftlogError``."""
        self.reads += 1
        if self.reads <= 3:
            raise ValueError("not msgpack")
        return await super().read(partition, offsets, timeout_ms)

    async def take(self, timeout_ms: int) -> None:
        """At once."""


class Slow(DelayedCoordinator):
    """It takes a tenth of a second to begin."""

    passed_s = 0.0
    begun = 0

    def begin(self, now_ms: int, before: Decisions | None) -> Decisions:
        """Counted."""
        self.begun += 1
        self.passed_s += 0.1
        return super().begin(now_ms, before)


class SlowClock(VirtualClock):
    """Advances while ``coordinator`` begins."""

    coordinator: Slow | None = None

    def monotonic(self) -> float:
        """The loop's time, and what the coordinator has taken."""
        return super().monotonic() + (0.0 if self.coordinator is None else self.coordinator.passed_s)


# requirement: A3
async def test_a_refusal_in_the_last_epoch_brings_a_new_producer() -> None:
    delivery = Refusing(is_too_large=True)
    coordinator = coordinator_of(delivery, VirtualClock(), DelayedCoordinator)
    coordinator.state.lanes[LANE] = Lane(EPOCH_MAX, 5)
    coordinator.leads(InstantLog(coordinator))
    for number in (1, 2):
        assert isinstance(await coordinator.ask(add(new(number, delay_ms=0)), 1_000), Added)
        await asyncio.sleep(1)
    assert delivery.tried == [(7, EPOCH_MAX, 5), (4711, 0, 0)]
    assert set(coordinator.state.failed) == {id_of(1), id_of(2)}
    coordinator.leads(None)


# requirement: A3
async def test_a_lane_goes_on_after_an_unexpected_error(caplog: pytest.LogCaptureFixture) -> None:
    delivery = Unreadable()
    coordinator = coordinator_of(delivery, VirtualClock(), DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    decisions = coordinator.decisions
    await coordinator.ask(add(new(1, delay_ms=0)), 1_000)
    await asyncio.sleep(5)
    assert (delivery.reads, [lane for lane, _ in delivery.delivered]) == (4, [LANE])
    assert coordinator.decisions is decisions, "the other lanes are left alone"
    assert not coordinator.state.waiting
    assert caplog.text.count("ValueError: not msgpack") == 3
    coordinator.leads(None)


# requirement: A3
async def test_each_epoch_of_the_leader_tells_what_reads_the_messages() -> None:
    """What was read in an earlier one may not be in the log any more."""
    begun: list[tuple[int, bool]] = []

    class Told(Refusing):
        def begin(self, partition: int, *, is_led: bool) -> None:
            """Noted."""
            begun.append((partition, is_led))

    coordinator = coordinator_of(Told(is_too_large=False), VirtualClock(), DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    coordinator.leads(None)
    assert begun == [(0, True), (0, False)]


class Faulty(Decisions):
    """Has a defect, once: at the place that is named in ``defects``."""

    defects: ClassVar[list[str]] = []

    def _fail_at(self, place: str) -> None:
        if place in self.defects:
            self.defects.remove(place)
            raise KeyError("a defect")

    def delivered(self, move: Move, now_ms: int, wall_ms: int) -> None:
        """After half of its work."""
        super().delivered(move, now_ms, wall_ms)
        self._fail_at("delivered")

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """After half of its work."""
        super().tick(now_ms, wall_ms)
        self._fail_at("tick")

    def receive(self, request_id: int, request: Request, now_ms: int, wall_ms: int) -> None:
        """After half of its work."""
        super().receive(request_id, request, now_ms, wall_ms)
        self._fail_at("receive")


class WithDefects(DelayedCoordinator):
    """Its decisions have one."""

    def begin(self, now_ms: int, before: Decisions | None) -> Decisions:
        """As usual, but for the class."""
        if "begin" in Faulty.defects:
            Faulty.defects.remove("begin")
            raise KeyError("a defect")
        return Faulty(
            self.state,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            pending_max=100,
            batch_bytes_max=lambda topic: 1 << 20,
        )


class Arriving(Refusing):
    """Each batch arrives at once."""

    def __init__(self) -> None:
        super().__init__(is_too_large=False)

    async def take(self, timeout_ms: int) -> None:
        """At once."""


class SlowLog(InstantLog):
    """What is proposed is committed after a second."""

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Later."""
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def commit() -> None:
            super(SlowLog, self).propose(batches, frees_room=frees_room)
            outcome.set_result(None)

        asyncio.get_running_loop().call_later(1.0, commit)
        return outcome


# requirement: A3
@pytest.mark.parametrize("place", ["delivered", "tick", "begin"])
async def test_a_coordinator_goes_on_after_a_defect_of_its_decisions(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = Arriving()
    coordinator = coordinator_of(delivery, VirtualClock(), WithDefects)
    Faulty.defects[:] = [place]
    coordinator.leads(InstantLog(coordinator))
    await asyncio.sleep(6)  # a defect at the beginning is over
    await coordinator.ask(add(new(1, delay_ms=500)), 1_000)
    await asyncio.sleep(10)
    assert not Faulty.defects
    assert not coordinator.state.waiting
    assert len(set(delivery.tried)) == 1  # sent again, it is the same batch
    assert len(delivery.tried) == (2 if place == "delivered" else 1)
    assert "KeyError: 'a defect'" in caplog.text
    coordinator.leads(None)


# requirement: A3
async def test_what_is_being_appended_at_a_defect_is_known_to_the_next_decisions() -> None:
    coordinator = coordinator_of(Arriving(), VirtualClock(), WithDefects)
    coordinator.leads(SlowLog(coordinator))
    first = asyncio.create_task(coordinator.ask(add(new(1, delay_ms=60_000)), 10_000))
    await asyncio.sleep(0.1)
    Faulty.defects[:] = ["receive"]
    with pytest.raises(RaftlogError, match="a defect"):
        await coordinator.ask(add(new(2, delay_ms=60_000)), 10_000)
    with pytest.raises(CommitUnknown):
        await first
    await asyncio.sleep(0.5)
    with pytest.raises(NotLeader):  # it does not know yet what is stored
        await coordinator.ask(add(new(1, delay_ms=60_000)), 10_000)
    await asyncio.sleep(2)
    assert isinstance(await coordinator.ask(add(new(1, delay_ms=60_000)), 10_000), Added)
    assert set(coordinator.state.waiting) == {id_of(1)}
    coordinator.leads(None)


# requirement: A3
async def test_a_full_disk_does_not_multiply_the_attempts_of_a_batch() -> None:
    delivery = Refusing(is_too_large=False)
    coordinator = coordinator_of(delivery, VirtualClock(), DelayedCoordinator)
    log = FullLog(coordinator)
    coordinator.leads(log)
    await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=500, partition=1)), 1_000)
    log.is_full = True  # the assignment of the second message is refused, again and again
    await asyncio.sleep(30)
    assert delivery.at_a_time_max == 1
    coordinator.leads(None)


# requirement: A3
async def test_a_coordinator_that_begins_slowly_does_so_less_often() -> None:
    clock = SlowClock()
    coordinator = coordinator_of(Refusing(is_too_large=False), clock, Slow)
    assert isinstance(coordinator, Slow)
    clock.coordinator = coordinator
    log = FullLog(coordinator)
    coordinator.leads(log)
    await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=500, partition=1)), 1_000)
    log.is_full = True
    before = coordinator.begun
    await asyncio.sleep(60)
    assert 3 <= coordinator.begun - before <= 60 / 2
    coordinator.leads(None)


# requirement: A3
async def test_nothing_is_due_while_brokers_do_not_agree_on_a_time() -> None:
    clock = VirtualClock()
    coordinator = coordinator_of(Arriving(), clock, DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    await coordinator.ask(add(new(1, delay_ms=60_000)), 1_000)
    clock.is_known = False
    clock.shift_ms = 400 * 86_400_000  # the clock of this broker alone is ahead
    await asyncio.sleep(10)
    assert set(coordinator.state.waiting) == {id_of(1)}
    clock.shift_ms, clock.is_known = 0, True
    await asyncio.sleep(40)
    assert set(coordinator.state.waiting) == {id_of(1)}
    await asyncio.sleep(20)
    assert not coordinator.state.waiting, "it is due after a minute, and delivered"
    coordinator.leads(None)


# requirement: A3
async def test_a_delay_is_counted_by_no_clock_that_brokers_do_not_agree_on() -> None:
    clock = VirtualClock()
    coordinator = coordinator_of(Arriving(), clock, DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    clock.is_known, clock.shift_ms = False, -86_400_000  # the clock of this broker alone is behind
    with pytest.raises(Overloaded, match="do not agree on a time") as refused:
        await coordinator.ask(add(new(1, delay_ms=60_000)), 1_000)
    assert refused.value.details["retry_after_ms"] == 1_000
    clock.shift_ms, clock.is_known = 0, True
    await coordinator.ask(add(new(1, delay_ms=60_000)), 1_000)
    await asyncio.sleep(59)
    assert set(coordinator.state.waiting) == {id_of(1)}
    coordinator.leads(None)


# requirement: A3
async def test_a_batch_is_on_its_way_until_its_target_has_answered() -> None:
    delivery = Refusing(is_too_large=False)
    coordinator = coordinator_of(delivery, VirtualClock(), DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=60_000, partition=1)), 1_000)
    await asyncio.sleep(1)

    async def moving(partition: int) -> object:
        return await coordinator.ask(ReadMoving(topic="orders", partition=partition), 1_000)

    assert [await moving(0), await moving(1), await moving(2)] == [Moving(True), Moving(False), Moving(False)]
    coordinator.leads(None)


class Deleted(Refusing):
    """The topic of orders is deleted; others have no leader."""

    async def deleted(self, topics: Collection[TopicKey]) -> Set[TopicKey]:
        """See the class."""
        return {topic for topic in topics if topic.name == "orders"}


# requirement: N2
async def test_messages_of_a_deleted_topic_fail_at_once_and_leave_within_a_minute() -> None:
    coordinator = coordinator_of(Deleted(is_too_large=False), VirtualClock(), DelayedCoordinator)
    coordinator.leads(InstantLog(coordinator))
    for number, topic in ((1, "orders"), (2, "orders"), (3, "others")):
        added = await coordinator.ask(add(new(number, delay_ms=1 << 40), topic=topic), 1_000)
        assert isinstance(added, Added)
    coordinator.topic_deleted()
    await asyncio.sleep(1)
    assert coordinator.state.failed.keys() == {id_of(1), id_of(2)}
    await asyncio.sleep(59)
    assert [*coordinator.state.waiting] == [id_of(3)]
    coordinator.leads(None)
