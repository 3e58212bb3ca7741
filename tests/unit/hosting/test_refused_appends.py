"""A refused append: what callers are told of requests that are decided, and which deadlines stand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from groups.coordination import Coordination
from groups.coordinator import GroupCoordinator
from groups.records import Group
from groups.requests import Commit, Heartbeat, Join, Joined, OffsetCommit, Sync
from raftlog.errors import CommitUnknown, NotLeader, Overloaded, StorageFull
from raftlog.hosting.coordinator import AGAIN_S_MAX, QUIET_S, STALLED_S_MAX
from raftlog.hosting.known_topics import KnownTopics
from raftlog.records.batch import Batch
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.virtual_time import VirtualClock, eventually
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle, State
from transactions.requests import BeginRun, End, Open, Opened
from transactions.requests import Join as JoinTransaction

TIMEOUT_MS = 60_000
PARTITION = ("orders", 0)


class RefusingLog(InstantLog):
    """It refuses an append now and then, as a broker with too much in flight does."""

    def __init__(self, coordinator: GroupCoordinator | TransactionCoordinator) -> None:
        super().__init__(coordinator)
        self.refused = 0  # of the next appends

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append, or refuse with nothing written."""
        if self.refused:
            self.refused -= 1
            raise Overloaded("too much is in flight; retry")
        return super().propose(batches, frees_room=frees_room)


class HeldMarkers(InstantMarkers):
    """Markers that arrive when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.may_arrive = asyncio.Event()

    async def write(self, *_: object, **__: object) -> None:
        """Wait for the test."""
        await self.may_arrive.wait()


def transactions_with(markers: InstantMarkers) -> tuple[TransactionCoordinator, RefusingLog]:
    made = TransactionCoordinator(
        "__transactions/0", VirtualClock(), markers, id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    log = RefusingLog(made)
    made.leads(log)
    return made, log


async def opened(coordinator: TransactionCoordinator, timeout_ms: int) -> Handle:
    """An open transaction with a partition."""
    reply = await coordinator.ask(
        Open(transactional_id="copy", timeout_ms=timeout_ms, new_producer_id=1), TIMEOUT_MS
    )
    assert isinstance(reply, Opened)
    handle = Handle("copy", reply.producer_id, reply.epoch)
    await coordinator.ask(JoinTransaction(transaction=handle, partitions=(PARTITION,)), TIMEOUT_MS)
    return handle


async def refuse_one(coordinator: TransactionCoordinator, log: RefusingLog, number: int) -> None:
    """A request of somebody else finds the broker overloaded."""
    log.refused = 1
    with pytest.raises(Overloaded):
        await coordinator.ask(BeginRun(key=f"sink-{number}", owner="o", run="r", sequence=0), TIMEOUT_MS)


def overload(coordinator: TransactionCoordinator, log: RefusingLog) -> asyncio.Task[None]:
    return asyncio.create_task(refuse_one(coordinator, log, 0))


def depose(coordinator: TransactionCoordinator, log: RefusingLog) -> asyncio.Task[None]:
    async def work() -> None:
        coordinator.leads(None)

    return asyncio.create_task(work())


# requirement: D3
@pytest.mark.parametrize("fault", [overload, depose])
async def test_a_commit_that_is_decided_is_never_refused_as_not_done(
    fault: Callable[[TransactionCoordinator, RefusingLog], asyncio.Task[None]],
) -> None:
    coordinator, log = transactions_with(HeldMarkers())
    handle = await opened(coordinator, TIMEOUT_MS)
    commit = asyncio.create_task(coordinator.ask(End(transaction=handle, is_commit=True), TIMEOUT_MS))
    await eventually(lambda: coordinator.state.transactions["copy"].state is State.PREPARE_COMMIT)
    await fault(coordinator, log)
    with pytest.raises(CommitUnknown):
        await commit
    coordinator.leads(None)


# requirement: D3
async def test_a_commit_whose_own_record_is_refused_is_not_done() -> None:
    coordinator, log = transactions_with(InstantMarkers())
    handle = await opened(coordinator, TIMEOUT_MS)
    log.refused = 1
    with pytest.raises(Overloaded) as refusal:
        await coordinator.ask(End(transaction=handle, is_commit=True), TIMEOUT_MS)
    assert refusal.value.is_definite
    assert coordinator.state.transactions["copy"].state is State.ONGOING
    coordinator.leads(None)


# requirement: D3
async def test_refused_appends_give_an_open_transaction_no_more_time() -> None:
    coordinator, log = transactions_with(InstantMarkers())
    await opened(coordinator, timeout_ms=10_000)
    for number in range(4):
        await asyncio.sleep(3)
        await refuse_one(coordinator, log, number)
    await asyncio.sleep(2)
    assert coordinator.state.transactions["copy"].state is State.COMPLETE, "aborted after 10 s"
    coordinator.leads(None)


def group_coordinator() -> tuple[GroupCoordinator, RefusingLog]:
    topics = TopicsOnly(KnownTopics({"orders": 1}, {"orders": "t"}))
    made = GroupCoordinator(
        "__offsets/0", VirtualClock(), topics, NoJobs(), are_open, offsets_retention_ms=1 << 40
    )
    log = RefusingLog(made)
    made.leads(log)
    return made, log


async def commit(coordinator: GroupCoordinator, group: str = "other") -> None:
    """A commit of a group."""
    offset = OffsetCommit(topic="orders", topic_id="t", partition=0, offset=1)
    await coordinator.ask(Commit(group=group, offsets=(offset,)), TIMEOUT_MS)


async def refuse_commit(coordinator: GroupCoordinator, log: RefusingLog) -> None:
    """A commit of another group finds the broker overloaded."""
    log.refused = 1
    with pytest.raises(Overloaded):
        await commit(coordinator)


async def joined(coordinator: GroupCoordinator, member_id: str) -> int:
    """The generation of a member with a session of 10 s."""
    ask = Join(
        group="mail",
        member_id=member_id,
        topics=("orders",),
        strategies=("range",),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
    )
    reply = await coordinator.ask(ask, TIMEOUT_MS)
    assert isinstance(reply, Joined)
    await coordinator.ask(
        Sync(group="mail", member_id=member_id, generation=reply.generation, is_auto=True), TIMEOUT_MS
    )
    return reply.generation


def mail(coordinator: GroupCoordinator) -> Group:
    return coordinator.state.groups["mail"]


# requirement: C2
async def test_refused_appends_give_a_dead_member_no_more_time() -> None:
    coordinator, log = group_coordinator()
    await joined(coordinator, "dead")
    for _ in range(4):
        await asyncio.sleep(3)
        await refuse_commit(coordinator, log)
    await asyncio.sleep(2)
    assert not mail(coordinator).members, "its session has 10 s"
    coordinator.leads(None)


# requirement: C2
async def test_an_expiry_that_is_refused_is_tried_again_at_once() -> None:
    coordinator, log = group_coordinator()
    await joined(coordinator, "dead")
    log.refused = 3
    await asyncio.sleep(13)
    assert log.refused == 0
    assert not mail(coordinator).members
    coordinator.leads(None)


class FullDisk(InstantLog):
    """A log of a leader whose disk has its reserve left, until ``has_room``."""

    has_room = False

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append what may use the reserve."""
        if not (frees_room or self.has_room):
            raise StorageFull("the leader's disk is full")
        return super().propose(batches, frees_room=frees_room)


# requirement: A11
async def test_a_group_on_a_full_disk_loses_dead_members_and_gets_others() -> None:
    """Retention may wait for what it has yet to consume."""
    coordinator, _ = group_coordinator()
    await joined(coordinator, "dead")
    coordinator.leads(FullDisk(coordinator))
    await asyncio.sleep(13)
    assert not mail(coordinator).members
    await joined(coordinator, "another")
    assert {*mail(coordinator).members} == {"another"}
    with pytest.raises(StorageFull):
        await commit(coordinator)  # of a group that does not exist yet
    coordinator.leads(None)


# requirement: A11
async def test_requests_that_need_room_do_not_stop_the_others_of_a_full_disk() -> None:
    coordinator, _ = group_coordinator()
    await commit(coordinator, "mail")
    log = FullDisk(coordinator)
    coordinator.leads(log)
    decisions = coordinator.decisions
    for _ in range(10):
        with pytest.raises(StorageFull):
            await commit(coordinator)
        await commit(coordinator, "mail")
    assert coordinator.decisions is decisions, "which began again after no refusal"
    log.has_room = True
    await commit(coordinator)
    coordinator.leads(None)


# requirement: C2
async def test_a_member_that_is_heard_keeps_its_session_through_refused_appends() -> None:
    coordinator, log = group_coordinator()
    generation = await joined(coordinator, "alive")
    for _ in range(10):
        await asyncio.sleep(2)
        await refuse_commit(coordinator, log)
        await asyncio.sleep(1)
        await coordinator.ask(Heartbeat(group="mail", member_id="alive", generation=generation), TIMEOUT_MS)
    assert mail(coordinator).generation == generation
    assert set(mail(coordinator).members) == {"alive"}
    coordinator.leads(None)


# requirement: C2
async def test_a_rebalance_ends_without_a_dead_member_whatever_is_refused() -> None:
    coordinator, log = group_coordinator()
    await joined(coordinator, "dead")
    joining = None
    for second in range(60):
        if joining is None or joining.done():
            if joining is not None and joining.exception() is None:
                break
            joining = asyncio.create_task(joined(coordinator, "new"))
        await asyncio.sleep(1)
        if second % 9 == 8:
            await refuse_commit(coordinator, log)
    assert joining is not None
    assert joining.done()
    assert set(mail(coordinator).members) == {"new"}
    coordinator.leads(None)


@pytest.mark.parametrize("pause_s", [1, 9])
async def test_appends_that_are_refused_again_and_again_are_reported(pause_s: int) -> None:
    coordinator, log = group_coordinator()
    await refuse_commit(coordinator, log)
    assert coordinator.stalled_s < STALLED_S_MAX, "a single refusal is none"
    for _ in range(20 // pause_s):
        await asyncio.sleep(pause_s)
        await refuse_commit(coordinator, log)
    assert coordinator.stalled_s > STALLED_S_MAX
    await asyncio.sleep(QUIET_S + AGAIN_S_MAX)
    assert coordinator.stalled_s == 0, "nobody asks any more"
    await refuse_commit(coordinator, log)
    assert coordinator.stalled_s < STALLED_S_MAX
    coordinator.leads(None)


async def test_a_coordinator_whose_every_step_fails_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator, _ = group_coordinator()
    await joined(coordinator, "member")  # its session ends at some time
    with monkeypatch.context() as patched:
        patched.setattr(Coordination, "tick", lambda *_: 1 // 0)
        await asyncio.sleep(40)
        assert coordinator.stalled_s > STALLED_S_MAX
    await asyncio.sleep(AGAIN_S_MAX)
    await commit(coordinator)
    assert coordinator.stalled_s == 0
    coordinator.leads(None)


async def test_a_request_has_no_part_in_what_has_expired_before_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator, _ = group_coordinator()
    with monkeypatch.context() as patched:
        patched.setattr(Coordination, "expire", lambda *_: 1 // 0)
        with pytest.raises(NotLeader):  # the request is repeated, and not refused for good
            await commit(coordinator)
    await asyncio.sleep(AGAIN_S_MAX)
    await commit(coordinator)
    coordinator.leads(None)


async def test_an_append_without_an_outcome_is_reported() -> None:
    coordinator, log = group_coordinator()

    assert coordinator.stalled_s == 0
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.propose = lambda batches, frees_room: outcome  # type: ignore[method-assign]
    offset = OffsetCommit(topic="orders", topic_id="t", partition=0, offset=1)
    commit = asyncio.create_task(coordinator.ask(Commit(group="other", offsets=(offset,)), TIMEOUT_MS))
    await asyncio.sleep(20)
    assert coordinator.stalled_s == pytest.approx(20, abs=0.5)
    outcome.set_result(None)
    await commit
    assert coordinator.stalled_s == 0
    coordinator.leads(None)
