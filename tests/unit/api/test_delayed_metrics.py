"""What a broker reports of the delayed messages and schedules that it coordinates."""

from __future__ import annotations

import asyncio

from api.delayed_metrics import DelayedMetrics
from delayed.coordinator import DelayedCoordinator
from delayed.requests import PauseSchedule
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.decided_delays import add, create, new
from tests.helpers.instant_delays import Refusing, coordinator_of, instant_coordinator
from tests.helpers.instant_groups import InstantLog
from tests.helpers.virtual_time import VirtualClock


def reported(*coordinators: DelayedCoordinator) -> dict[str, float]:
    """The samples, by name and labels."""
    collector = DelayedMetrics(dict(enumerate(coordinators)), VirtualClock())
    found: dict[str, float] = {}
    for metric in collector.collect():
        for sample in metric.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


# requirement: A3
@in_virtual_time
async def test_pending_delivered_and_late_messages_are_reported() -> None:
    assert reported()["raftlog_delayed_lateness_seconds_count"] == 0
    clock = VirtualClock()
    coordinator = instant_coordinator(clock)
    coordinator.leads(InstantLog(coordinator))
    await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=60_000)), 1_000)
    await coordinator.ask(create("s"), 1_000)
    await coordinator.ask(create("t"), 1_000)
    await coordinator.ask(PauseSchedule(id="t", is_paused=True), 1_000)
    await asyncio.sleep(1)
    found = reported(coordinator)
    assert found["raftlog_delayed_messages{pending}"] == 1
    assert found["raftlog_delayed_messages{due}"] == found["raftlog_delayed_messages{failed}"] == 0
    assert (found["raftlog_schedules{active}"], found["raftlog_schedules{paused}"]) == (1, 1)
    clock.shift_ms += 3_600_000
    await asyncio.sleep(2)
    found = reported(coordinator)
    assert found["raftlog_schedule_firings_total"] == 1 + 1, "the newest that was missed, and the last one"
    assert found["raftlog_schedule_misses_total"] == 1
    assert found["raftlog_delayed_lateness_seconds_count"] == 2 + 2
    assert found["raftlog_delayed_lateness_seconds_bucket{0.01}"] == 1
    assert found["raftlog_delayed_lateness_seconds_bucket{600.0}"] == 3, (
        "one waited for the clock for an hour"
    )
    assert found["raftlog_delayed_lateness_seconds_sum"] > 3_000
    coordinator.leads(None)
    assert reported(coordinator)["raftlog_delayed_messages{pending}"] == 0


# requirement: A3
@in_virtual_time
async def test_messages_that_cannot_be_delivered_are_reported() -> None:
    stuck = coordinator_of(Refusing(is_too_large=False), VirtualClock(), DelayedCoordinator)
    broken = coordinator_of(Refusing(is_too_large=True), VirtualClock(), DelayedCoordinator)
    for coordinator in (stuck, broken):
        coordinator.leads(InstantLog(coordinator))
        await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=1)), 1_000)
    await asyncio.sleep(30)
    found = reported(stuck, broken)
    assert found["raftlog_delayed_messages{due}"] == 2
    assert found["raftlog_delayed_messages{failed}"] == found["raftlog_delayed_failures_total"] == 2
    assert found["raftlog_delayed_messages{pending}"] == 0
    assert found["raftlog_delayed_retries_total"] >= 3
    assert 29 <= found["raftlog_delayed_oldest_due_seconds"] <= 31
    for coordinator in (stuck, broken):
        coordinator.leads(None)
