"""An error that nobody has thought of costs the requests of its round, and the coordinator begins again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Commit, Done, OffsetCommit
from raftlog.errors import CommitUnknown, NotLeader, Overloaded, RaftlogError, RecordTooLarge
from raftlog.hosting import coordinator as coordinator_module
from raftlog.records.batch import Batch
from tests.helpers.instant_groups import NoJobs, TopicsOnly
from tests.helpers.virtual_time import VirtualClock

Append = asyncio.Future[None]
TOO_LARGE = 1 << 64  # for a row
AGAIN_S = 1.0  # more than the pause before a coordinator begins again


class Log:
    """Appends that are committed at once, unless the test has another outcome for the next one."""

    leader_epoch = 1

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


def coordinator_of(log: Log) -> GroupCoordinator:
    topics = TopicsOnly(KnownTopics({"orders": 1}))
    made = GroupCoordinator("__offsets/0", VirtualClock(), topics, NoJobs(), offsets_retention_ms=1 << 40)
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
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "WRITE_BYTES_MAX", 1_000)
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    coordinator = coordinator_of(Log())
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
