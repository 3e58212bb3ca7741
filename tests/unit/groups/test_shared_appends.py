"""Commits that arrive together share an append."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Commit, OffsetCommit
from raftlog.records.batch import Batch
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import InstantLog, NoJobs
from tests.helpers.virtual_time import VirtualClock

GROUPS = 64


class CountedLog(InstantLog):
    """Counts its appends."""

    appends = 0

    def propose(self, batches: Sequence[Batch]) -> asyncio.Future[None]:
        """One more."""
        self.appends += 1
        return super().propose(batches)


@in_virtual_time
async def test_commits_that_arrive_in_one_turn_of_the_loop_share_an_append() -> None:
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    log = CountedLog(coordinator)
    coordinator.leads(log)
    offsets = (OffsetCommit(topic="orders", topic_id="0", partition=0, offset=7),)
    commits = [Commit(group=f"group-{number}", offsets=offsets) for number in range(GROUPS)]
    await asyncio.gather(*(coordinator.ask(commit, 5_000) for commit in commits))
    assert log.appends == 1
    assert len(coordinator.state.offsets) == GROUPS
