"""Metrics of the consumer groups that this broker coordinates, computed when a scrape collects them.

Lists at most ``limits.group_metrics_max`` groups, ordered by name, and at most as many lags of partitions. A
scrape asks no other broker: it shows the newest sample of the lag (``groups.lag_samples``), and starts the
measurement of the next sample in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, repeat
from operator import itemgetter

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.coordinators.groups import BrokerGroups
from broker.metrics.exposition import PAUSE, STEP, steps
from groups.coordinator import GroupCoordinator
from groups.lag_samples import Row
from groups.records import CommittedOffset, Group


class GroupMetrics(Collector):
    """Collector of the metrics of groups and queues."""

    def __init__(self, groups: BrokerGroups, shown_max: int) -> None:
        self._groups = groups
        self._shown_max = shown_max

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        coordinators = list(self._groups.coordinators.values())
        yield CounterMetricFamily(
            "raftlog_group_offsets_committed",
            "Offsets committed to the coordinators here.",
            sum(each.tally.offsets_committed for each in coordinators),
        )
        yield CounterMetricFamily(
            "raftlog_group_members_expired",
            "Members removed because they were not heard in time.",
            sum(each.tally.members_expired for each in coordinators),
        )
        yield CounterMetricFamily(
            "raftlog_groups_expired",
            "Groups deleted with their offsets, as they were unused and their records were deleted.",
            sum(each.tally.groups_expired for each in coordinators),
        )
        yield from _queue_metrics(coordinators)
        led = [(each, each.decisions.state) for each in coordinators if each.decisions is not None]
        count = sum(len(state.names) for _, state in led)
        named = (zip(state.names, repeat(each)) for each, state in led)
        shown = dict(islice(merge(*named, key=itemgetter(0)), self._shown_max))
        yield GaugeMetricFamily("raftlog_groups", "Groups that this broker coordinates.", count)
        yield GaugeMetricFamily(
            "raftlog_group_state_bytes",
            "Bytes of the groups that this broker coordinates, and of their offsets.",
            sum(state.used.total for _, state in led),
        )
        yield GaugeMetricFamily(
            "raftlog_groups_not_shown",
            "Groups omitted because of limits.group_metrics_max.",
            count - len(shown),
        )
        yield from _group_metrics(shown)
        yield from self._lag_metrics(shown)

    def _lag_metrics(self, shown: Mapping[str, GroupCoordinator]) -> Iterator[Metric]:
        labels = ["group", "topic", "partition"]
        records = GaugeMetricFamily(
            "raftlog_group_lag_records", "Records behind the committed offset.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "raftlog_group_lag_seconds", "Age of the first record that is not consumed.", labels=labels
        )
        rows, left = list[tuple[Row, CommittedOffset]](), islice(_offsets_of(shown), self._shown_max)
        while some := list(islice(left, STEP)):
            rows += some
            yield PAUSE
            for row, committed in some:
                lag = self._groups.lags.lag_of(row, committed)
                if lag is not None:
                    named = [row[0], row[1], str(row[2])]
                    records.add_metric(named, lag[0])
                    seconds.add_metric(named, lag[1])
        if rows and _is_in_loop():
            self._groups.lags.want(rows)
        yield from (records, seconds)
        yield GaugeMetricFamily(
            "raftlog_group_lags_not_shown",
            "Committed offsets whose lag is omitted because of limits.group_metrics_max.",
            sum(len(_offsets(each, name)) for name, each in shown.items()) - len(rows),
        )


def _queue_metrics(coordinators: Sequence[GroupCoordinator]) -> Iterator[Metric]:
    """Yield the metrics of all queues, except their lags, which are among the lags of groups."""
    tallies = [each.tally for each in coordinators]
    counters = {
        "deliveries": ("Jobs delivered to workers.", [each.jobs_delivered for each in tallies]),
        "redeliveries": (
            "Jobs delivered that had been delivered before.",
            [each.jobs_redelivered for each in tallies],
        ),
        "jobs_done": ("Jobs acknowledged.", [each.jobs_done for each in tallies]),
        "jobs_dead": ("Jobs moved to dead-letter topics.", [each.jobs_dead for each in tallies]),
        "leases_expired": ("Leases that ended without an answer.", [each.leases_expired for each in tallies]),
    }
    for name, (text, counts) in counters.items():
        yield CounterMetricFamily(f"raftlog_queue_{name}", text, sum(counts))
    led = [each.decisions for each in coordinators if each.decisions is not None]
    yield GaugeMetricFamily(
        "raftlog_queue_open_jobs",
        "Jobs leased, waiting for another delivery, or on their way to a dead-letter topic.",
        sum(each.queues.open_jobs for each in led),
    )
    yield GaugeMetricFamily(
        "raftlog_queue_open_job_bytes",
        "Bytes that these jobs count towards queues.open_jobs_bytes_max.",
        sum(each.queues.open_bytes for each in led),
    )


def _group_metrics(shown: Mapping[str, GroupCoordinator]) -> Iterator[Metric]:
    members = GaugeMetricFamily("raftlog_group_members", "Members of a group.", labels=["group"])
    generation = GaugeMetricFamily("raftlog_group_generation", "Generation of a group.", labels=["group"])
    offsets = GaugeMetricFamily("raftlog_group_offsets", "Committed offsets of a group.", labels=["group"])
    took = GaugeMetricFamily(
        "raftlog_group_last_rebalance_seconds", "Duration of a group's last rebalance.", labels=["group"]
    )
    rebalances = CounterMetricFamily(
        "raftlog_group_rebalances", "Completed rebalances.", labels=["group", "reason"]
    )
    for some in steps([*shown.items()]):
        yield PAUSE
        for name, coordinator in some:
            group = _group(coordinator, name)
            members.add_metric([name], len(group.members))
            generation.add_metric([name], group.generation)
            offsets.add_metric([name], len(_offsets(coordinator, name)))
            if group.rebalances:
                took.add_metric([name], group.rebalances[-1].duration_ms / 1000)
            for reason, count in sorted(coordinator.tally.rebalances.get(name, {}).items()):
                rebalances.add_metric([name, reason], count)
    yield from (members, generation, offsets, took, rebalances)


def _group(coordinator: GroupCoordinator, name: str) -> Group:
    """Return the group with this name; an empty group if it was deleted during the scrape."""
    return Group() if coordinator.coordinated is None else coordinator.coordinated.groups.get(name, Group())


def _offsets(coordinator: GroupCoordinator, name: str) -> Mapping[tuple[str, int], CommittedOffset]:
    return {} if coordinator.coordinated is None else coordinator.coordinated.offsets.get(name, {})


def _offsets_of(shown: Mapping[str, GroupCoordinator]) -> Iterator[tuple[Row, CommittedOffset]]:
    for name, coordinator in shown.items():
        for (topic, partition), committed in sorted(_offsets(coordinator, name).items()):
            yield (name, topic, partition), committed


def _is_in_loop() -> bool:
    """Return whether an event loop runs; none runs when the registry collects at registration."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
