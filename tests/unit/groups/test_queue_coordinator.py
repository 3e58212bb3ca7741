"""A coordinator of queues whose log, topics and dead-letter topics refuse. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.queue_effects import Bury, Found, Look, Looked
from groups.queue_requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import NoLeader, NotLeader, StorageFull
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import FullLog, InstantLog
from tests.helpers.virtual_time import VirtualClock

# requirement: A7


class OneJob:
    """See ``groups.ports.Jobs``: a record at offset 0, and dead letters that are refused for some time."""

    def __init__(self) -> None:
        self.refusals = 0
        self.buried: list[Bury] = []
        self.looks = 0

    async def look(self, look: Look) -> Looked:
        """Waits at the end as a partition does."""
        self.looks += 1
        if look.offset == 0:
            return Looked(0, 1, (Found(0),))
        await asyncio.sleep(look.wait_ms / 1000)
        return Looked(1, 1)

    async def bury(self, bury: Bury) -> None:
        """Refused for a while."""
        if self.refusals:
            self.refusals -= 1
            raise NoLeader("an election")
        self.buried.append(bury)


def coordinator_of(jobs: OneJob) -> GroupCoordinator:
    return GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"mail": 1}), jobs, offsets_retention_ms=1 << 40
    )


def receive(lease: bytes, *, wait_ms: int = 0) -> Receive:
    return Receive(
        group="g",
        topic="mail",
        topic_id="t1",
        lease=lease,
        count_max=1,
        lease_ms=30_000,
        deliveries_max=5,
        wait_ms=wait_ms,
    )


def settle(how: str, lease: bytes) -> Settle:
    return Settle(group="g", topic="mail", tokens=(Token(0, 0, lease),), how=how)  # type: ignore[arg-type]


async def leased(coordinator: GroupCoordinator, lease: bytes = b"one") -> None:
    found = await coordinator.ask(receive(lease), 10_000)
    assert isinstance(found, Received)
    assert [job.offset for job in found.jobs] == [0]


@in_virtual_time
async def test_a_dead_letter_is_tried_again_until_it_is_stored() -> None:
    jobs = OneJob()
    jobs.refusals = 20
    coordinator = coordinator_of(jobs)
    coordinator.leads(InstantLog(coordinator))
    await leased(coordinator)
    await coordinator.ask(settle("dead", b"one"), 1_000)
    await asyncio.sleep(120)
    assert len(jobs.buried) == 1
    assert coordinator.state.jobs == {}
    assert coordinator.tally.jobs_dead == 1
    coordinator.leads(None)


@in_virtual_time
async def test_dead_letters_of_a_coordinator_that_was_deposed_are_stored_by_the_next() -> None:
    jobs = OneJob()
    jobs.refusals = 1_000
    coordinator = coordinator_of(jobs)
    coordinator.leads(InstantLog(coordinator))
    await leased(coordinator)
    await coordinator.ask(settle("dead", b"one"), 1_000)
    coordinator.leads(None)
    refusals = jobs.refusals
    await asyncio.sleep(60)
    assert jobs.refusals == refusals
    jobs.refusals = 0
    coordinator.leads(InstantLog(coordinator))
    await asyncio.sleep(1)
    assert len(jobs.buried) == 1
    coordinator.leads(None)


@in_virtual_time
async def test_a_lease_that_could_not_be_stored_is_nobodys() -> None:
    jobs = OneJob()
    coordinator = coordinator_of(jobs)
    log = FullLog(coordinator)
    coordinator.leads(log)
    log.is_full = True
    with pytest.raises(StorageFull):
        await coordinator.ask(receive(b"one"), 10_000)
    log.is_full = False
    await asyncio.sleep(1)
    await leased(coordinator, b"two")
    with pytest.raises(AssertionError):
        await leased(coordinator, b"three")
    coordinator.leads(None)


@in_virtual_time
async def test_a_broker_that_was_deposed_does_not_say_that_a_lease_is_over() -> None:
    """Its successor may have delivered the job to this very worker."""

    class Deposed(InstantLog):
        is_deposed = False

        async def confirm(self) -> None:
            """Another broker leads."""
            if self.is_deposed:
                raise NotLeader("deposed", leader=None)

    coordinator = coordinator_of(OneJob())
    log = Deposed(coordinator)
    coordinator.leads(log)
    await leased(coordinator)
    lost = await coordinator.ask(settle("ack", b"other"), 1_000)
    assert isinstance(lost, Settled)
    assert lost.lost == (0,)
    log.is_deposed = True
    with pytest.raises(NotLeader):
        await coordinator.ask(settle("ack", b"other"), 1_000)
    coordinator.leads(None)


@in_virtual_time
async def test_receivers_that_wait_are_told_when_the_coordinator_is_deposed() -> None:
    jobs = OneJob()
    coordinator = coordinator_of(jobs)
    coordinator.leads(InstantLog(coordinator))
    await leased(coordinator)
    waiting = asyncio.ensure_future(coordinator.ask(receive(b"two", wait_ms=60_000), 70_000))
    await asyncio.sleep(20)
    looks = jobs.looks
    assert looks < 10
    coordinator.leads(None)
    with pytest.raises(NotLeader):
        await waiting
    await asyncio.sleep(60)
    assert jobs.looks == looks


@in_virtual_time
async def test_a_receiver_that_waits_gets_the_job_when_its_lease_ends() -> None:
    coordinator = coordinator_of(OneJob())
    coordinator.leads(InstantLog(coordinator))
    began_s = asyncio.get_running_loop().time()
    await leased(coordinator)
    found = await coordinator.ask(receive(b"two", wait_ms=60_000), 70_000)
    assert isinstance(found, Received)
    assert [job.deliveries for job in found.jobs] == [2]
    assert 29.5 < asyncio.get_running_loop().time() - began_s < 31
    coordinator.leads(None)
