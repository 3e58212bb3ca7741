"""Metrics of the delayed messages and schedules that this broker coordinates.

The values are computed when a scrape collects them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.metrics.exposition import PAUSE
from delayed.coordinator import DelayedCoordinator
from delayed.decisions import Counts
from delayed.records import Schedule
from delayed.tally import LATENESS_MS, Tally
from raftlog.clock import Clock


class DelayedMetrics(Collector):
    """Collector of the metrics of delayed messages and schedules."""

    def __init__(self, coordinators: Mapping[int, DelayedCoordinator], clock: Clock) -> None:
        """``coordinators`` are the coordinators of this broker's replicas, by partition of ``__delayed``."""
        self._coordinators = coordinators
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        coordinators = list(self._coordinators.values())
        counts, schedules = list[Counts](), Counter[str]()
        for led in [each.decisions for each in coordinators if each.decisions]:
            counts.append(led.counts())
            schedules.update(_state_of(one) for one in led.state.schedules.values())
            yield PAUSE
        yield from _gauges(counts, schedules, self._clock.wall_ms())
        yield from _counters([each.tally for each in coordinators])


def _state_of(schedule: Schedule) -> str:
    if schedule.failed:
        return "failed"
    return "paused" if schedule.is_paused else "active"


def _gauges(counts: Sequence[Counts], schedules: Mapping[str, int], now_ms: int) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "raftlog_delayed_messages", "Messages that are not in their topics, by state.", labels=["state"]
    )
    states.add_metric(["pending"], sum(each.pending for each in counts))
    states.add_metric(["due"], sum(each.due for each in counts))
    states.add_metric(["failed"], sum(each.failed for each in counts))
    yield states
    yield GaugeMetricFamily(
        "raftlog_delayed_bytes",
        "Bytes of these messages on disk, as they count towards delayed.pending_bytes_max.",
        sum(each.size_bytes for each in counts),
    )
    oldest_ms = min((each.oldest_ms for each in counts if each.oldest_ms is not None), default=now_ms)
    yield GaugeMetricFamily(
        "raftlog_delayed_oldest_due_seconds",
        "How late the message is that should be in its topic for the longest time.",
        max(0, now_ms - oldest_ms) / 1000,
    )
    by_state = GaugeMetricFamily("raftlog_schedules", "Schedules by state.", labels=["state"])
    for state in ("active", "paused", "failed"):
        by_state.add_metric([state], schedules.get(state, 0))
    yield by_state


def _counters(tallies: Sequence[Tally]) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "raftlog_delayed_failures",
        "Delayed messages that could not be delivered.",
        sum(each.failed for each in tallies),
    )
    yield CounterMetricFamily(
        "raftlog_delayed_retries",
        "Attempts to deliver a batch of delayed messages that are repeated.",
        sum(each.retries for each in tallies),
    )
    yield CounterMetricFamily(
        "raftlog_schedule_firings", "Messages of schedules.", sum(each.fired for each in tallies)
    )
    yield CounterMetricFamily(
        "raftlog_schedule_misses",
        "How often a schedule left out instants that had passed.",
        sum(each.missed for each in tallies),
    )
    classes = accumulate(sum(each) for each in zip(*(one.lateness for one in tallies), strict=True))
    bounds = [*(str(bound / 1000) for bound in LATENESS_MS), "+Inf"]
    lateness = HistogramMetricFamily(
        "raftlog_delayed_lateness_seconds", "Time between when a message was due and its delivery."
    )
    lateness.add_metric(
        [],
        list(zip(bounds, classes, strict=True)) if tallies else [(bound, 0) for bound in bounds],
        sum_value=sum(each.lateness_sum_ms for each in tallies) / 1000,
    )
    yield lateness
