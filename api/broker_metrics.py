"""What a broker knows of itself, as metrics: computed when they are asked for, never kept up.

Sums over all groups by default, so that a thousand partitions do not make ten thousand lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.broker import Broker
from raftlog.core.ready import Role


class BrokerMetrics(Collector):
    """Register one of these in a broker's registry."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """All figures as of now."""
        broker = self._broker
        groups = list(broker.host.groups.values())
        roles = GaugeMetricFamily(
            "raftlog_raft_groups", "Raft groups by this broker's role.", labels=["role"]
        )
        counts = Counter("stopped" if group.stopped else group.role.value for group in groups)
        for role in [*(role.value for role in Role), "stopped"]:
            roles.add_metric([role], counts[role])
        yield roles
        yield GaugeMetricFamily(
            "raftlog_raft_groups_asleep",
            "Groups that cost nothing at the moment.",
            sum(group.is_asleep for group in groups),
        )
        yield GaugeMetricFamily(
            "raftlog_log_bytes", "Bytes of all logs.", sum(group.log.size_bytes for group in groups)
        )
        yield GaugeMetricFamily(
            "raftlog_uncommitted_records",
            "Indexes in logs beyond the commit index.",
            sum(max(0, group.last_index - group.commit_index) for group in groups),
        )
        yield GaugeMetricFamily(
            "raftlog_uncommitted_bytes",
            "Bytes in logs led here that are not committed; bounded by limits.uncommitted_bytes_max.",
            broker.host.uncommitted.total,
        )
        flusher = broker.host.flusher
        yield CounterMetricFamily("raftlog_sync_rounds", "Rounds of syncs.", flusher.rounds)
        yield CounterMetricFamily("raftlog_syncs", "Syncs of single logs; several in a round.", flusher.syncs)
        yield GaugeMetricFamily("raftlog_disk_free_bytes", "Room left for logs.", broker.disk.free_bytes)
        yield GaugeMetricFamily(
            "raftlog_producers",
            "Producers that the replicas here remember.",
            broker.manager.admission.remembered,
        )
        yield GaugeMetricFamily(
            "raftlog_trash_bytes",
            "Bytes of folders that were given up and can be taken back.",
            broker.manager.trash.size_bytes,
        )
        yield from _replica_metrics(broker)
        yield from _clock_metrics(broker)
        yield from _repair_metrics(broker)
        yield GaugeMetricFamily(
            "raftlog_metadata_version", "Version of the metadata here.", broker.controller.image.version
        )


def _replica_metrics(broker: Broker) -> Iterator[Metric]:
    """Replicas that do not do all that they should."""
    yield GaugeMetricFamily(
        "raftlog_failed_replicas",
        "Replicas that should work here and do not.",
        len(broker.manager.failures),
    )
    yield GaugeMetricFamily(
        "raftlog_rejoining_replicas",
        "Replicas that lost files and count towards no majority yet.",
        sum(group.is_rejoining for group in broker.host.groups.values()),
    )


def _clock_metrics(broker: Broker) -> Iterator[Metric]:
    """How the wall clock here differs from the time that brokers go by."""
    clock = broker.host.clock
    yield GaugeMetricFamily(
        "raftlog_clock_trusted", "Whether records are deleted by age.", int(clock.is_trusted)
    )
    yield GaugeMetricFamily(
        "raftlog_clock_offset_seconds",
        "Wall clock here minus the time that this broker goes by.",
        clock.offset_ms / 1000,
    )


def _repair_metrics(broker: Broker) -> Iterator[Metric]:
    """What was read through for damage, and what was mended."""
    scrub, repairs = broker.scrubber.counts, broker.repairer.counts
    sick_bay = broker.manager.sick_bay
    yield CounterMetricFamily("raftlog_scrub_bytes", "Bytes read through for damage.", scrub.bytes_read)
    yield CounterMetricFamily(
        "raftlog_scrub_damages", "Damaged files and segments found so.", scrub.damages_found
    )
    yield GaugeMetricFamily(
        "raftlog_scrub_cycle_ended_seconds",
        "When everything was last read through.",
        scrub.last_cycle_ended_ms / 1000,
    )
    yield CounterMetricFamily(
        "raftlog_damaged_logs",
        "Replicas that ended since a read or the scrub found damage.",
        broker.host.damaged_logs,
    )
    yield CounterMetricFamily("raftlog_repairs", "Replicas mended from peers.", repairs.replicas_mended)
    yield CounterMetricFamily(
        "raftlog_repairs_failed", "Attempts that did not succeed.", repairs.attempts_failed
    )
    yield CounterMetricFamily("raftlog_repair_bytes", "Bytes fetched for it.", repairs.bytes_fetched)
    yield GaugeMetricFamily(
        "raftlog_repairs_running",
        "Replicas being mended.",
        0 if sick_bay is None else sick_bay.under_repair,
    )
    yield GaugeMetricFamily(
        "raftlog_replicas_to_rebuild",
        "Damaged replicas that no peer can help.",
        len(broker.manager.ward.to_rebuild),
    )
