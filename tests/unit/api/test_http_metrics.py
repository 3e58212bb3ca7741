"""Requests and their durations, as a scrape sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.resources.metrics import Answered, collected

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
