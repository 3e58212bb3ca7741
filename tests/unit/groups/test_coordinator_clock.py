"""Sessions end by the coordinator's clock, also where it was held up or is advanced. In virtual time."""

from __future__ import annotations

import asyncio

from groups.coordinator import GroupCoordinator
from groups.ports import KnownTopics
from groups.requests import Join, ReadGroup
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.instant_groups import InstantLog, NoJobs
from tests.helpers.virtual_time import VirtualClock


class AdvancedClock(VirtualClock):
    """Ahead of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the run began, and those that were let pass."""
        return super().monotonic() + self.passed_s


async def coordinator_with_a_silent_member(clock: AdvancedClock) -> GroupCoordinator:
    coordinator = GroupCoordinator(
        "__offsets/0", clock, KnownTopics({"orders": 1}), NoJobs(), offsets_retention_ms=1 << 40
    )
    coordinator.leads(InstantLog(coordinator))
    join = Join(group="billing", member_id="silent", topics=("orders",), session_timeout_ms=600_000)
    await coordinator.ask(join, 1_000)
    assert members_of(coordinator) == ["silent"]
    clock.passed_s = 660.0
    return coordinator


def members_of(coordinator: GroupCoordinator) -> list[str]:
    return sorted(coordinator.state.groups["billing"].members)


@in_virtual_time
async def test_an_advanced_clock_is_noticed_within_a_second() -> None:
    coordinator = await coordinator_with_a_silent_member(AdvancedClock())
    await asyncio.sleep(1.5)
    assert members_of(coordinator) == []
    coordinator.leads(None)


@in_virtual_time
async def test_requests_do_not_prolong_the_sessions_of_others_after_a_stall() -> None:
    coordinator = await coordinator_with_a_silent_member(AdvancedClock())
    for _ in range(150):
        await coordinator.ask(ReadGroup(group="billing"), 1_000)
        await asyncio.sleep(0.01)
    assert members_of(coordinator) == []
    coordinator.leads(None)
