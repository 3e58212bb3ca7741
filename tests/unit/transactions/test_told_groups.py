"""Groups that take part in a transaction: when it is open, and that each of them is told its end."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from raftlog.errors import GroupNotFound, NoLeader, RaftlogError
from tests.helpers.instant_groups import FullLog, InstantLog
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.virtual_time import VirtualClock
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle, State
from transactions.requests import AbortOpen, Done, End, Ended, Join, Open

TIMEOUT_MS = 5_000
ONE = Handle("copy-1", 4711, 0)


class Outcomes(InstantMarkers):
    """What groups are told. They acknowledge it from when they are ``reachable``."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Handle, bool]] = []
        self.reachable = asyncio.Event()
        self.gone: set[str] = set()
        self.attempts = 0

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """See ``transactions.coordinator.Markers``."""
        self.attempts += 1
        if group in self.gone:
            raise GroupNotFound("there is no topic __offsets")
        if not self.reachable.is_set():
            raise NoLeader("its coordinator is down")
        self.told.append((group, transaction, is_commit))


def coordinator_of(outcomes: Outcomes) -> TransactionCoordinator:
    """One that leads its partition."""
    found = TransactionCoordinator(
        "__transactions/0", VirtualClock(), outcomes, id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    found.leads(InstantLog(found))
    return found


async def with_groups(coordinator: TransactionCoordinator, *groups: str, timeout_ms: int = 60_000) -> None:
    """An open transaction in which these take part."""
    ask = Open(transactional_id="copy-1", timeout_ms=timeout_ms, new_producer_id=4711)
    await coordinator.ask(ask, TIMEOUT_MS)
    for group in groups:
        await coordinator.ask(Join(transaction=ONE, groups=(group,)), TIMEOUT_MS)


async def test_an_end_is_answered_once_each_group_knows_it() -> None:
    # requirement: D3
    outcomes = Outcomes()
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "sums", "copiers")
    assert coordinator.state.transactions["copy-1"].groups == ("copiers", "sums")
    ending = asyncio.create_task(coordinator.ask(End(transaction=ONE, is_commit=True), 60_000))
    await asyncio.sleep(5)
    assert not ending.done()
    assert outcomes.attempts > 4
    assert coordinator.tally.marker_retries >= 4
    assert coordinator.tally.markers_unwritten == 2
    outcomes.reachable.set()
    assert await ending == Ended(is_committed=True, next_epoch=1)
    assert sorted(outcomes.told) == [("copiers", ONE, True), ("sums", ONE, True)]
    assert coordinator.state.transactions["copy-1"].groups == ()
    assert (coordinator.tally.committed, coordinator.tally.markers_unwritten) == (1, 0)
    coordinator.leads(None)


async def test_a_next_coordinator_tells_the_groups_again() -> None:
    # requirement: D3
    outcomes = Outcomes()
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "copiers")
    ending = asyncio.create_task(coordinator.ask(End(transaction=ONE, is_commit=False), 60_000))
    await asyncio.sleep(1)
    coordinator.leads(None)
    await asyncio.gather(ending, return_exceptions=True)
    outcomes.reachable.set()
    following = coordinator_of(outcomes)
    following.leads(None)
    following.restoring(coordinator.snapshot())()
    following.leads(InstantLog(following))
    assert isinstance(await following.ask(End(transaction=ONE, is_commit=False), TIMEOUT_MS), Ended)
    assert outcomes.told == [("copiers", ONE, False)]
    following.leads(None)


async def test_a_transaction_with_groups_alone_is_aborted_when_its_time_is_over() -> None:
    # requirement: D3
    outcomes = Outcomes()
    outcomes.reachable.set()
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "copiers", timeout_ms=1_000)
    assert coordinator.state.transactions["copy-1"].state is State.ONGOING
    await asyncio.sleep(3)
    assert outcomes.told == [("copiers", ONE, False)]
    coordinator.leads(None)


async def test_an_operators_abort_is_told_to_groups() -> None:
    outcomes = Outcomes()
    outcomes.reachable.set()
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "copiers")
    assert await coordinator.ask(AbortOpen(transactional_id="copy-1"), TIMEOUT_MS) == Done()
    assert outcomes.told == [("copiers", ONE, False)]
    coordinator.leads(None)


async def test_a_repeated_abort_of_an_operator_ends_no_later_transaction() -> None:
    # requirement: D3
    outcomes = Outcomes()
    outcomes.reachable.set()
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "copiers")
    abort = AbortOpen(transactional_id="copy-1", transaction=(ONE.producer_id, ONE.epoch))
    assert await coordinator.ask(abort, TIMEOUT_MS) == Done()
    found = coordinator.state.transactions["copy-1"]
    following = Handle("copy-1", found.producer_id, found.epoch)
    await coordinator.ask(Join(transaction=following, groups=("copiers",)), TIMEOUT_MS)
    assert await coordinator.ask(abort, TIMEOUT_MS) == Done()
    assert coordinator.state.transactions["copy-1"].state is State.ONGOING
    coordinator.leads(None)


async def test_a_group_whose_topic_is_gone_is_not_told() -> None:
    outcomes = Outcomes()
    outcomes.gone.add("copiers")
    coordinator = coordinator_of(outcomes)
    await with_groups(coordinator, "copiers")
    assert isinstance(await coordinator.ask(End(transaction=ONE, is_commit=True), TIMEOUT_MS), Ended)
    coordinator.leads(None)


async def test_a_coordinator_that_is_deposed_as_it_begins_to_tell_leaves_no_work_behind() -> None:
    coordinator = coordinator_of(Outcomes())
    await with_groups(coordinator, "copiers")
    ending = asyncio.create_task(coordinator.ask(End(transaction=ONE, is_commit=True), TIMEOUT_MS))
    while not coordinator._beside:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # what it sends has begun, and each of its parts has not
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coordinator.leads(None)
        await asyncio.gather(ending, return_exceptions=True)
        gc.collect()
    assert coordinator.tally.markers_unwritten == 0


# requirement: D3
async def test_a_coordinator_that_begins_again_tells_each_group_from_one_place() -> None:
    outcomes = Outcomes()
    coordinator = coordinator_of(outcomes)
    log = FullLog(coordinator)
    coordinator.leads(log)
    await with_groups(coordinator, "copiers")
    ending = asyncio.create_task(coordinator.ask(End(transaction=ONE, is_commit=True), 60_000))
    await asyncio.sleep(1)
    log.is_full = True
    for number in range(20):  # each is refused, and the coordinator begins again
        ask = Open(transactional_id=f"copy-{number + 2}", timeout_ms=60_000, new_producer_id=5000 + number)
        with pytest.raises(RaftlogError):
            await coordinator.ask(ask, 1_000)
        await asyncio.sleep(0.5)
    await asyncio.gather(ending, return_exceptions=True)
    assert coordinator.tally.markers_unwritten == 1
    coordinator.leads(None)
    await asyncio.sleep(0)
    assert coordinator.tally.markers_unwritten == 0
