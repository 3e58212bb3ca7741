"""Metrics as a scrape sees them: requests, delayed messages, the delay of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.broker_metrics import BrokerMetrics
from api.delayed_metrics import DelayedMetrics
from api.loop_delay import INTERVAL_S, LoopDelay, waited_for_processor_s
from api.resources.metrics import Answered, collected
from delayed.coordinator import DelayedCoordinator
from delayed.requests import PauseSchedule
from tests.helpers.decided_delays import add, create, new
from tests.helpers.instant_delays import Refusing, coordinator_of, instant_coordinator
from tests.helpers.instant_groups import InstantLog
from tests.helpers.virtual_time import VirtualClock, VirtualLoop, eventually
from tests.helpers.whole_broker import whole_broker

SECONDS = "raftlog_http_request_seconds"
OF_READS = {"method": "GET", "route": "/v1/topics"}


def test_a_duration_counts_up_to_its_bound_and_all_above() -> None:
    answered, registry = Answered(), CollectorRegistry()
    registry.register(answered)
    for status, seconds in ((200, 0.0005), (200, 0.3), (404, 100.0)):
        answered.add("GET", "/v1/topics", status, seconds)
    answered.add("POST", "/v1/topics", 201, 0.2)

    def up_to(bound: str) -> float | None:
        return registry.get_sample_value(f"{SECONDS}_bucket", {**OF_READS, "le": bound})

    assert [up_to(bound) for bound in ("0.0005", "0.25", "0.5", "60.0", "+Inf")] == [1, 1, 2, 2, 3]
    assert registry.get_sample_value(f"{SECONDS}_count", OF_READS) == 3
    assert registry.get_sample_value(f"{SECONDS}_sum", OF_READS) == 100.3005
    counted = registry.get_sample_value("raftlog_http_requests_total", {**OF_READS, "status": "200"})
    assert counted == 2


def test_the_event_loop_turns_between_two_metrics() -> None:
    """Each may be a sum over thousands of groups; peers would take a broker that adds up all for lost."""
    turns = 0

    class Sums(Collector):
        def collect(self) -> Iterator[Metric]:
            for number in range(5):
                yield GaugeMetricFamily(f"sum_{number}", "Turns before it.", turns)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def seen() -> list[float]:
        registry = CollectorRegistry()
        registry.register(Sums())  # which asks for the names
        counting = asyncio.create_task(count_turns())
        found = await collected(registry)
        counting.cancel()
        return [metric.samples[0].value for metric in found.collect()]

    values = asyncio.run(seen())
    assert len(values) == len(set(values)) == 5


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


@pytest.mark.parametrize(
    ("waits_s", "blocked_s", "delay_above", "held_up_to"),
    [([0.0, 0.0, 0.0], 0.3, "0.25", {"0.1": 0}), ([0.0, 0.3, 0.3], 0.2, "0.1", {"0.001": 1})],
    ids=["callback", "no processor"],
)
async def test_a_delay_of_the_loop_is_held_time_unless_it_had_no_processor(
    monkeypatch: pytest.MonkeyPatch,
    waits_s: list[float],
    blocked_s: float,
    delay_above: str,
    held_up_to: dict[str, int],
) -> None:
    registry, waits = CollectorRegistry(), iter(waits_s)
    monkeypatch.setattr("api.loop_delay.waited_for_processor_s", lambda: next(waits))

    def counted(bucket: str, what: str = "delay") -> float:
        return registry.get_sample_value(f"raftlog_event_loop_{what}_seconds_bucket", {"le": bucket}) or 0.0

    delay, loop = LoopDelay(registry), asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(0)
    loop.skip(INTERVAL_S + blocked_s)
    await eventually(lambda: counted("+Inf") != 0)
    delay.stop()
    assert (counted(delay_above), counted("+Inf", "held")) == (0, 1)
    assert {bucket: counted(bucket, "held") for bucket in held_up_to} == held_up_to


def test_the_system_tells_how_long_a_thread_waited() -> None:
    before = waited_for_processor_s()
    assert 0 <= before <= waited_for_processor_s()


async def test_a_broker_that_takes_no_records_says_so() -> None:
    async with whole_broker() as found:
        broker, registry = found.broker, CollectorRegistry()
        registry.register(BrokerMetrics(broker))

        def shown() -> list[float | None]:
            return [registry.get_sample_value(f"raftlog_disk_{name}") for name in ("full", "reserve_bytes")]

        assert shown() == [0, broker.disk.reserve_bytes]
        broker.host.has_room = lambda: False
        assert shown() == [1, broker.disk.reserve_bytes]
