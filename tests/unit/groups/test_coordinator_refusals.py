"""A coordinator whose append is refused begins again while its broker still leads. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Join
from raftlog.errors import StorageFull
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import FullLog, NoJobs
from tests.helpers.virtual_time import VirtualClock


@in_virtual_time
async def test_a_coordinator_begins_again_after_an_append_was_refused() -> None:
    coordinator = GroupCoordinator(
        "__offsets/0", VirtualClock(), KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    log = FullLog(coordinator)
    log.is_full = True
    coordinator.leads(log)
    join = Join(group="billing", member_id="a", topics=("orders",))
    with pytest.raises(StorageFull):
        await coordinator.ask(join, 1_000)
    assert not coordinator.is_coordinating
    log.is_full = False
    await asyncio.sleep(1.0)
    assert coordinator.is_coordinating
    await coordinator.ask(join, 1_000)
    assert sorted(coordinator.state.groups["billing"].members) == ["a"]
    coordinator.leads(None)
