"""Metrics of the delayed messages and schedules that this broker coordinates.

They are computed when they are collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from delayed.coordinator import DelayedCoordinator
from delayed.decisions import Decisions
from delayed.tally import LATENESS_MS, Tally
from raftlog.clock import Clock


class DelayedMetrics(Collector):
    """A collector for a broker's registry."""

    def __init__(self, coordinators: Mapping[int, DelayedCoordinator], clock: Clock) -> None:
        """``coordinators`` has those of this broker's replicas, by partition of ``__delayed``."""
        self._coordinators = coordinators
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The current values."""
        coordinators = list(self._coordinators.values())
        yield from _gauges([each.decisions for each in coordinators if each.decisions], self._clock.wall_ms())
        yield from _counters([each.tally for each in coordinators])


def _gauges(led: Sequence[Decisions], now_ms: int) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "raftlog_delayed_messages", "Messages that are not in their topics, by state.", labels=["state"]
    )
    counts = [each.counts() for each in led]
    states.add_metric(["pending"], sum(each.pending for each in counts))
    states.add_metric(["due"], sum(each.due for each in counts))
    states.add_metric(["failed"], sum(each.failed for each in counts))
    yield states
    yield GaugeMetricFamily(
        "raftlog_delayed_bytes",
        "Bytes of these messages on disk, as they count towards delayed.pending_bytes_max.",
        sum(each.state.sizes.total for each in led),
    )
    oldest_ms = min((each.oldest_ms for each in counts if each.oldest_ms is not None), default=now_ms)
    yield GaugeMetricFamily(
        "raftlog_delayed_oldest_due_seconds",
        "How late the message is that should be in its topic for the longest time.",
        max(0, now_ms - oldest_ms) / 1000,
    )
    schedules = [one for each in led for one in each.state.schedules.values()]
    by_state = GaugeMetricFamily("raftlog_schedules", "Schedules by state.", labels=["state"])
    by_state.add_metric(["active"], sum(one.is_active for one in schedules))
    by_state.add_metric(["paused"], sum(one.is_paused and not one.failed for one in schedules))
    by_state.add_metric(["failed"], sum(bool(one.failed) for one in schedules))
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
