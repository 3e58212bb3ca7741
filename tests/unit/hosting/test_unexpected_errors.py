"""An error that nobody has thought of costs the requests of its round, and the coordinator begins again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

import pytest

from groups.coordinator import GroupCoordinator
from groups.expiry import Survey
from groups.ports import Extents, Place
from groups.requests import Commit, Done, OffsetCommit
from queues.effects import Bury, Found, Look, Looked
from queues.requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import CommitUnknown, NotLeader, Overloaded, RaftlogError, RecordTooLarge
from raftlog.hosting.known_topics import KnownTopics
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.records.batch import Batch
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.virtual_time import VirtualClock
from transactions.coordinator import TransactionCoordinator
from transactions.outputs import Mark
from transactions.records import Handle

Append = asyncio.Future[None]
TOO_LARGE = 1 << 64  # for a row
AGAIN_S = 1.0  # more than the pause before a coordinator begins again


class Log:
    """Appends that are committed at once, unless the test has another outcome for the next one."""

    leader_epoch = 1
    has_room = True

    def __init__(self) -> None:
        self.next: Callable[[], Append] | None = None

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> Append:
        """Take the outcome of the test, once."""
        outcome, self.next = self.next or committed, None
        return outcome()

    async def confirm(self) -> None:
        """This leader is not deposed."""


def committed() -> Append:
    outcome = asyncio.get_running_loop().create_future()
    outcome.set_result(None)
    return outcome


def out_of_memory() -> Append:
    raise MemoryError


def raised(error: Exception) -> None:
    raise error


def coordinator_of(log: Log, frame_limits: FrameLimits = FRAME_LIMITS) -> GroupCoordinator:
    topics = TopicsOnly(KnownTopics({"orders": 1}))
    made = GroupCoordinator(
        "__offsets/0",
        VirtualClock(),
        topics,
        NoJobs(),
        are_open,
        offsets_retention_ms=1 << 40,
        frame_limits=frame_limits,
    )
    made.leads(log)
    return made


def commit_of(group: str, *, leader_epoch: int = 0, metadata: str = "") -> Commit:
    offset = OffsetCommit(
        topic="orders", topic_id="t1", partition=0, offset=5, leader_epoch=leader_epoch, metadata=metadata
    )
    return Commit(group=group, offsets=(offset,))


async def test_a_request_whose_record_cannot_be_made_is_refused_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")  # the stack is for operators
    coordinator = coordinator_of(Log())
    with pytest.raises(RaftlogError, match="OverflowError") as refusal:
        await coordinator.ask(commit_of("broken", leader_epoch=TOO_LARGE), 1_000)
    assert not refusal.value.retryable, "each repetition would cost all others a beginning"
    with pytest.raises(NotLeader):
        await coordinator.ask(commit_of("meanwhile"), 1_000)
    await asyncio.sleep(AGAIN_S)
    assert await coordinator.ask(commit_of("after"), 1_000) == Done()
    coordinator.leads(None)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
async def test_a_request_for_which_there_is_no_memory_may_be_repeated(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator = coordinator_of(Log())
    with monkeypatch.context() as patched:
        patched.setattr(coordinator.decisions, "receive", lambda *_: raised(error))
        with pytest.raises(Overloaded, match="retry") as refusal:
            await coordinator.ask(commit_of("short"), 1_000)
    assert refusal.value.is_definite
    await asyncio.sleep(AGAIN_S)
    assert await coordinator.ask(commit_of("short"), 1_000) == Done()
    coordinator.leads(None)


async def test_a_record_that_no_frame_carries_costs_its_request_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator = coordinator_of(Log(), FrameLimits(write_bytes_max=1_000))
    beside = asyncio.create_task(coordinator.ask(commit_of("beside"), 1_000))
    await asyncio.sleep(0)
    with pytest.raises(RecordTooLarge, match="send less"):
        await coordinator.ask(commit_of("large", metadata="x" * 1_000), 1_000)
    with pytest.raises(NotLeader):  # nothing of it was stored: it is repeated
        await beside
    await asyncio.sleep(AGAIN_S)
    assert await coordinator.ask(commit_of("after"), 1_000) == Done()
    coordinator.leads(None)


async def test_an_append_that_cannot_be_made_costs_its_requests_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    log = Log()
    coordinator = coordinator_of(log)
    assert await coordinator.ask(commit_of("before"), 1_000) == Done()
    log.next = out_of_memory
    with pytest.raises(CommitUnknown, match="begins again; repeat"):
        await coordinator.ask(commit_of("broken"), 1_000)
    await asyncio.sleep(AGAIN_S)
    assert await coordinator.ask(commit_of("after"), 1_000) == Done()
    coordinator.leads(None)


async def test_an_outcome_that_is_not_known_is_not_taken_for_a_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    log = Log()
    coordinator = coordinator_of(log)
    outcome: Append = asyncio.get_running_loop().create_future()
    log.next = lambda: outcome
    waiting = asyncio.create_task(coordinator.ask(commit_of("cancelled"), 1_000))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(outcome.cancel)
    with pytest.raises(CommitUnknown):
        await waiting
    coordinator.leads(log)  # in the next epoch
    assert await coordinator.ask(commit_of("after"), 1_000) == Done()
    coordinator.leads(None)


async def test_a_step_that_fails_costs_no_later_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator = coordinator_of(Log())

    def breaks() -> None:
        raise MemoryError

    coordinator.step(breaks)
    await asyncio.sleep(AGAIN_S)
    assert await coordinator.ask(commit_of("after"), 1_000) == Done()
    coordinator.leads(None)


class FailingJobs:
    """One job. The first looks and burials raise an error that is no ``RaftlogError``."""

    def __init__(self, error: Exception, *, looks: int = 0, burials: int = 0) -> None:
        self.error = error
        self.looks, self.burials = looks, burials  # that are yet to fail
        self.buried: list[Bury] = []

    async def look(self, look: Look) -> Looked:
        """A record at offset 0, and then the end."""
        if self.looks:
            self.looks -= 1
            raise self.error
        if look.offset == 0:
            return Looked(0, 1, (Found(0),))
        await asyncio.sleep(look.wait_ms / 1000)
        return Looked(1, 1)

    async def bury(self, bury: Bury) -> None:
        """Remember it."""
        if self.burials:
            self.burials -= 1
            raise self.error
        self.buried.append(bury)


def queue_of(jobs: FailingJobs) -> GroupCoordinator:
    topics = TopicsOnly(KnownTopics({"orders": 1}))
    made = GroupCoordinator(
        "__offsets/0", VirtualClock(), topics, jobs, are_open, offsets_retention_ms=1 << 40
    )
    made.leads(InstantLog(made))
    return made


def receive(*, wait_ms: int = 10_000) -> Receive:
    return Receive(
        group="queue",
        topic="orders",
        topic_id="t1",
        lease=b"one",
        count_max=1,
        lease_ms=30_000,
        deliveries_max=5,
        wait_ms=wait_ms,
    )


ERRORS = [
    MemoryError(),
    RuntimeError("can't start new thread"),
    ValueError("a record that nobody thought of"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_a_look_that_fails_costs_no_other_group_its_coordinator(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = queue_of(FailingJobs(error, looks=1_000_000))
    decisions = coordinator.decisions
    receiving = asyncio.create_task(coordinator.ask(receive(wait_ms=500), 5_000))
    for _ in range(5):
        await asyncio.sleep(1)
        assert await coordinator.ask(commit_of("another"), 1_000) == Done()
    with pytest.raises(RaftlogError, match="cannot"):
        await receiving
    assert coordinator.decisions is decisions
    assert caplog.records[0].exc_info is not None, "operators need the stack"
    coordinator.leads(None)


@pytest.mark.parametrize("error", ERRORS[:2], ids=repr)
async def test_a_look_for_which_there_was_no_memory_is_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator = queue_of(FailingJobs(error, looks=1))
    received = await coordinator.ask(receive(), 20_000)
    assert isinstance(received, Received)
    assert [job.offset for job in received.jobs] == [0]
    coordinator.leads(None)


# requirement: A7
@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_a_dead_letter_that_fails_costs_no_other_group_its_coordinator(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    jobs = FailingJobs(error, burials=3)
    coordinator = queue_of(jobs)
    decisions = coordinator.decisions
    await coordinator.ask(receive(), 20_000)
    dead = Settle(group="queue", topic="orders", tokens=(Token(0, 0, b"one"),), how="dead")
    assert isinstance(await coordinator.ask(dead, 1_000), Settled)
    await asyncio.sleep(5)
    assert len(jobs.buried) == 1
    assert coordinator.decisions is decisions
    coordinator.leads(None)


class UnreadableTopics(TopicsOnly):
    """Topics whose partitions cannot be asked."""

    asked = 0

    async def extents(self, places: Collection[Place]) -> Extents:
        """Fails every time."""
        self.asked += 1
        raise MemoryError


async def test_a_survey_that_fails_costs_no_group_its_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    topics = UnreadableTopics(KnownTopics({"orders": 1}))
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), topics, NoJobs(), are_open, offsets_retention_ms=1
    )
    coordinator.leads(InstantLog(coordinator))
    decisions = coordinator.decisions
    await coordinator.ask(commit_of("unused"), 1_000)
    coordinator.perform(Survey(("unused",), (Place("orders", "t1", 0),)))
    await asyncio.sleep(AGAIN_S)
    assert topics.asked == 1
    assert coordinator.decisions is decisions
    coordinator.leads(None)


class FailingMarkers(InstantMarkers):
    """The first ones raise an error that is no ``RaftlogError``."""

    failures = 3

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """Fails a few times."""
        if self.failures:
            self.failures -= 1
            raise MemoryError


async def test_an_outcome_that_fails_costs_no_other_transaction_its_coordinator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    markers = FailingMarkers()
    coordinator = TransactionCoordinator(
        "__transactions/0", VirtualClock(), markers, id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    coordinator.leads(InstantLog(coordinator))
    decisions = coordinator.decisions
    coordinator.perform(Mark(Handle("copy", 7, 0), is_commit=True, partitions=(), groups=("g",)))
    await asyncio.sleep(5)
    assert not markers.failures
    assert coordinator.tally.markers_unwritten == 0
    assert coordinator.decisions is decisions
    coordinator.leads(None)
