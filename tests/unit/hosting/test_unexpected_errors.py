"""An error that nobody has thought of costs the requests of its round, and the coordinator begins again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Commit, Done, OffsetCommit
from raftlog.errors import CommitUnknown, NotLeader
from raftlog.records.batch import Batch
from tests.helpers.instant_groups import NoJobs
from tests.helpers.virtual_time import VirtualClock

Append = asyncio.Future[None]
TOO_LARGE = 1 << 64  # for a row
AGAIN_S = 1.0  # more than the pause before a coordinator begins again


class Log:
    """Appends that are committed at once, unless the test has another outcome for the next one."""

    leader_epoch = 1

    def __init__(self) -> None:
        self.next: Callable[[], Append] | None = None

    def propose(self, batches: Sequence[Batch]) -> Append:
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


def coordinator_of(log: Log) -> GroupCoordinator:
    topics = KnownTopics({"orders": 1})
    made = GroupCoordinator("__offsets/0", VirtualClock(), topics, NoJobs(), offsets_retention_ms=1 << 40)
    made.leads(log)
    return made


def commit_of(group: str, *, leader_epoch: int = 0) -> Commit:
    return Commit(
        group=group,
        offsets=(
            OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=5, leader_epoch=leader_epoch),
        ),
    )


@pytest.mark.parametrize(
    ("leader_epoch", "outcome"), [(TOO_LARGE, committed), (0, out_of_memory)], ids=["row", "memory"]
)
async def test_an_append_that_cannot_be_made_costs_its_requests_alone(
    leader_epoch: int, outcome: Callable[[], Append], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")  # the stack is for operators
    log = Log()
    coordinator = coordinator_of(log)
    assert await coordinator.ask(commit_of("before"), 1_000) == Done()
    log.next = outcome
    with pytest.raises(CommitUnknown, match="begins again; repeat"):
        await coordinator.ask(commit_of("broken", leader_epoch=leader_epoch), 1_000)
    with pytest.raises(NotLeader):
        await coordinator.ask(commit_of("meanwhile"), 1_000)
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
