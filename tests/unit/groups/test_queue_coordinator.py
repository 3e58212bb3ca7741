"""A coordinator whose log or topics refuse, that is deposed, or whose clock advances. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from groups.coordinator import GroupCoordinator
from groups.requests import Commit, GroupView, Join, OffsetCommit, ReadGroup, Reply, Request
from groups.service import GroupService
from queues.effects import Bury, Found, Look, Looked
from queues.ports import Jobs
from queues.requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import CommitUnknown, NoLeader, NotLeader, StorageFull
from raftlog.hosting.coordinator import AGAIN_S
from raftlog.hosting.known_topics import KnownTopics
from raftlog.node.rpc import Calls
from raftlog.records.batch import Batch
from raftlog.types import NodeId
from tests.helpers.instant_groups import FullLog, InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock


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


def coordinator_of(jobs: Jobs | None = None, clock: VirtualClock | None = None) -> GroupCoordinator:
    topics = TopicsOnly(KnownTopics({"mail": 1, "orders": 1}))
    return GroupCoordinator(
        "__offsets/0",
        clock or VirtualClock(),
        topics,
        jobs or NoJobs(),
        are_open,
        offsets_retention_ms=1 << 40,
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


# requirement: A7
async def test_a_lease_says_whether_brokers_agreed_on_a_time() -> None:
    clock = VirtualClock()
    clock.is_known = False
    coordinator = coordinator_of(OneJob(), clock)
    coordinator.leads(InstantLog(coordinator))
    await leased(coordinator)
    assert [job.is_undated for job in coordinator.state.jobs["g"].values()] == [True]
    clock.is_known = True
    await coordinator.ask(settle("extend", b"one"), 1_000)
    assert [job.is_undated for job in coordinator.state.jobs["g"].values()] == [False]
    coordinator.leads(None)


# requirement: A7
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


# requirement: A7
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


# requirement: A7
async def test_a_lease_that_could_not_be_stored_is_nobodys() -> None:
    jobs = OneJob()
    coordinator = coordinator_of(jobs)
    log = FullLog(coordinator)
    coordinator.leads(log)
    log.is_full = True
    with pytest.raises(StorageFull):
        await coordinator.ask(receive(b"one"), 10_000)
    log.is_full = False
    await asyncio.sleep(2 * AGAIN_S)
    await leased(coordinator, b"two")
    with pytest.raises(AssertionError):
        await leased(coordinator, b"three")
    coordinator.leads(None)


# requirement: A7
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


# requirement: A7
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


# requirement: A7
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


class DeposedLog(InstantLog):
    """Its leader is deposed as soon as it has appended; what it has written is committed by the next one."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        super().__init__(coordinator)
        self.coordinator = coordinator

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """The outcome never comes."""
        super().propose(batches, frees_room=frees_room)
        loop = asyncio.get_running_loop()
        loop.call_soon(self.coordinator.leads, None)
        return loop.create_future()


class OnePartition:
    """A topic that this broker leads, or has led; it may not know the topic yet."""

    name = "__offsets"

    def __init__(self, *, is_known: bool = True) -> None:
        self.partition_count = 1 if is_known else None

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """The number of partitions that the active controller knows."""
        return 1

    async def create(self, timeout_ms: int) -> int:
        """The topic exists already."""
        return 1

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """This broker."""
        return (NodeId(1),)


def a_commit() -> Commit:
    """A commit of a group without members."""
    return Commit(
        group="billing", offsets=(OffsetCommit(topic="orders", topic_id="0", partition=0, offset=7),)
    )


def service_of(coordinator: GroupCoordinator, topic: OnePartition | None = None) -> GroupService:
    """All groups, as this broker reaches them."""
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    return GroupService(NodeId(1), topic or OnePartition(), {0: coordinator}, calls)


async def test_a_commit_whose_coordinator_is_deposed_after_the_append_is_unknown() -> None:
    # requirement: D2
    coordinator = coordinator_of()
    coordinator.leads(DeposedLog(coordinator))
    with pytest.raises(CommitUnknown):
        await service_of(coordinator).ask(a_commit(), timeout_ms=5_000)
    assert coordinator.state.offsets["billing"]  # and it is stored


# requirement: A7
async def test_a_repeated_request_whose_lease_is_over_may_have_been_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first attempt gives the job back, its answer is lost, and another worker gets the job."""
    coordinator = coordinator_of(OneJob())
    coordinator.leads(InstantLog(coordinator))
    await leased(coordinator, b"one")
    asks, answers_lost = coordinator.ask, [True]

    async def ask(request: Request, timeout_ms: int) -> Reply:
        reply = await asks(request, timeout_ms)
        if isinstance(request, Settle) and answers_lost:
            answers_lost.clear()
            await leased(coordinator, b"two")
            coordinator.leads(InstantLog(coordinator))  # the next one knows the newest lease alone
            raise CommitUnknown("the answer is lost")
        return reply

    monkeypatch.setattr(coordinator, "ask", ask)
    service = service_of(coordinator)
    nack = Settle(group="g", topic="mail", tokens=(Token(0, 0, b"one"),), how="nack")
    with pytest.raises(CommitUnknown):
        await service.ask(nack, timeout_ms=5_000)
    settled = await service.ask(nack, timeout_ms=5_000)
    assert isinstance(settled, Settled)
    assert settled.lost == (0,)
    coordinator.leads(None)


async def test_a_read_whose_coordinator_is_deposed_is_no_commit_in_doubt() -> None:
    coordinator = coordinator_of()
    coordinator.leads(DeposedLog(coordinator))
    coordinator.leads(None)
    service = service_of(coordinator)
    with pytest.raises(NoLeader):
        await service.ask(ReadGroup(group="billing"), timeout_ms=5_000)
    with pytest.raises(NoLeader) as refused:  # requirement: G6
        await service.coordinator("billing", timeout_ms=5_000)
    assert refused.value.details["retry_after_ms"]


async def test_a_broker_that_does_not_know_the_topic_yet_asks_before_it_denies_a_group() -> None:
    coordinator = coordinator_of()
    coordinator.leads(InstantLog(coordinator))
    service = service_of(coordinator)
    await service.ask(a_commit(), timeout_ms=5_000)
    service = service_of(coordinator, OnePartition(is_known=False))
    view = await service.ask(ReadGroup(group="billing"), timeout_ms=5_000)
    assert isinstance(view, GroupView)
    assert [committed.offset for _, _, committed in view.offsets] == [7]
    assert [found.group for found in await service.list_groups()] == ["billing"]
    coordinator.leads(None)


class AdvancedClock(VirtualClock):
    """Ahead of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the run began, and those that were let pass."""
        return super().monotonic() + self.passed_s


async def coordinator_with_a_silent_member(clock: AdvancedClock) -> GroupCoordinator:
    coordinator = coordinator_of(clock=clock)
    coordinator.leads(InstantLog(coordinator))
    join = Join(group="billing", member_id="silent", topics=("orders",), session_timeout_ms=600_000)
    await coordinator.ask(join, 1_000)
    assert members_of(coordinator) == ["silent"]
    clock.passed_s = 660.0
    return coordinator


def members_of(coordinator: GroupCoordinator) -> list[str]:
    return sorted(coordinator.state.groups["billing"].members)


async def test_an_advanced_clock_is_noticed_within_a_second() -> None:
    coordinator = await coordinator_with_a_silent_member(AdvancedClock())
    await asyncio.sleep(1.5)
    assert members_of(coordinator) == []
    coordinator.leads(None)


async def test_requests_do_not_prolong_the_sessions_of_others_after_a_stall() -> None:
    coordinator = await coordinator_with_a_silent_member(AdvancedClock())
    for _ in range(150):
        await coordinator.ask(ReadGroup(group="billing"), 1_000)
        await asyncio.sleep(0.01)
    assert members_of(coordinator) == []
    coordinator.leads(None)


async def test_a_coordinator_begins_again_after_an_append_was_refused() -> None:
    coordinator = coordinator_of()
    log = FullLog(coordinator)
    log.is_full = True
    coordinator.leads(log)
    join = Join(group="billing", member_id="a", topics=("orders",))
    with pytest.raises(StorageFull):
        await coordinator.ask(join, 1_000)
    assert not coordinator.is_coordinating
    log.is_full = False
    await asyncio.sleep(2 * AGAIN_S)
    assert coordinator.is_coordinating
    await coordinator.ask(join, 1_000)
    assert sorted(coordinator.state.groups["billing"].members) == ["a"]
    coordinator.leads(None)


GROUPS = 64


class CountedLog(InstantLog):
    """Counts its appends."""

    appends = 0

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Count the append."""
        self.appends += 1
        return super().propose(batches, frees_room=frees_room)


async def test_commits_that_arrive_in_one_turn_of_the_loop_share_an_append() -> None:
    coordinator = coordinator_of()
    log = CountedLog(coordinator)
    coordinator.leads(log)
    offsets = (OffsetCommit(topic="orders", topic_id="0", partition=0, offset=7),)
    commits = [Commit(group=f"group-{number}", offsets=offsets) for number in range(GROUPS)]
    await asyncio.gather(*(coordinator.ask(commit, 5_000) for commit in commits))
    assert log.appends == 1
    assert len(coordinator.state.offsets) == GROUPS
