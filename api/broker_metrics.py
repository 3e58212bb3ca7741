"""Metrics of a broker's parts, computed when they are collected.

Most are sums over all groups. Metrics of single partitions are limited to ``limits.partition_metrics_max``
partitions, because ten thousand partitions would need fifty thousand lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.broker import Broker
from raftlog.core.ready import Role
from raftlog.errors import NoLeader
from raftlog.hosting.hosted_replica import HostedState


class BrokerMetrics(Collector):
    """A collector for a broker's registry."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """The current values."""
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
            "raftlog_raft_groups_quiescent",
            "Quiescent groups.",
            sum(group.is_quiescent for group in groups),
        )
        yield GaugeMetricFamily(
            "raftlog_log_bytes", "Bytes of all logs.", sum(group.log.size_bytes for group in groups)
        )
        yield GaugeMetricFamily(
            "raftlog_awaiting_archive_bytes",
            "Bytes of logs led here that retention keeps only until they are archived.",
            sum(map(broker.retention.awaiting_archive, broker.host.groups)),
        )
        yield GaugeMetricFamily(
            "raftlog_uncommitted_records",
            "Indexes above the commit index.",
            sum(max(0, group.last_index - group.commit_index) for group in groups),
        )
        yield GaugeMetricFamily(
            "raftlog_uncommitted_bytes",
            "Uncommitted bytes in logs led here; bounded by limits.uncommitted_bytes_max.",
            broker.host.uncommitted.total,
        )
        flusher = broker.host.flusher
        yield CounterMetricFamily("raftlog_sync_rounds", "Rounds of syncs.", flusher.rounds)
        yield CounterMetricFamily(
            "raftlog_syncs", "Syncs of single logs; a round has several.", flusher.syncs
        )
        yield GaugeMetricFamily(
            "raftlog_producers",
            "Producer entries of the replicas here.",
            broker.manager.admission.remembered,
        )
        yield from _disk_metrics(broker)
        yield from _replica_metrics(broker)
        yield from _partition_metrics(broker)
        yield from _clock_metrics(broker)
        yield from _repair_metrics(broker)
        yield from _healing_metrics(broker)
        yield from _metadata_metrics(broker)


def _disk_metrics(broker: Broker) -> Iterator[Metric]:
    """The disk of this broker, and those of the others."""
    yield GaugeMetricFamily("raftlog_disk_free_bytes", "Free space for logs.", broker.disk.free_bytes)
    yield GaugeMetricFamily(
        "raftlog_disk_reserve_bytes",
        "Free space below which no records are taken.",
        broker.disk.reserve_bytes,
    )
    yield GaugeMetricFamily(
        "raftlog_disk_full",
        "1 while the broker takes no records: less than the reserve is free, or logs wait for room.",
        int(not broker.host.takes_records),
    )
    yield GaugeMetricFamily(
        "raftlog_trash_bytes",
        "Bytes of deleted folders that can be restored.",
        broker.manager.trash.size_bytes,
    )
    yield GaugeMetricFamily(
        "raftlog_disk_age",
        "A number that rises while the broker runs; it falls when an older copy of its disk is started.",
        broker.disks.age.disk.age,
    )
    yield GaugeMetricFamily(
        "raftlog_refused_brokers",
        "Brokers on an older copy of their disk, which this broker refuses.",
        len(broker.disks.refused),
    )


def _metadata_metrics(broker: Broker) -> Iterator[Metric]:
    """The metadata here, and the members of its group."""
    yield GaugeMetricFamily(
        "raftlog_metadata_version", "Version of the broker's metadata.", broker.controller.image.version
    )
    members = broker.controller.members
    yield GaugeMetricFamily(
        "raftlog_metadata_voters", "Brokers that elect the controller.", len(members.voters)
    )
    yield GaugeMetricFamily(
        "raftlog_metadata_learners", "Other brokers that get the metadata.", len(members.learners)
    )


def _replica_metrics(broker: Broker) -> Iterator[Metric]:
    """Hosted replicas by state, and failed ones."""
    states = GaugeMetricFamily(
        "raftlog_hosted_replicas", "Replicas on this broker by state.", labels=["state"]
    )
    for state in HostedState:
        states.add_metric([state.value], broker.supervisor.counts[state])
    yield states
    yield GaugeMetricFamily(
        "raftlog_failed_replicas",
        "Replicas that should serve here and do not.",
        len(broker.manager.failures),
    )
    yield GaugeMetricFamily(
        "raftlog_rejoining_replicas",
        "Replicas that lost files and count towards no majority yet.",
        sum(group.is_rejoining for group in broker.host.groups.values()),
    )


def _partition_metrics(broker: Broker) -> Iterator[Metric]:
    """The replicas one by one, ordered by topic name, up to the limit."""
    labels = ["topic", "partition"]
    high_watermark = GaugeMetricFamily(
        "raftlog_partition_high_watermark", "One past the newest record that can be read.", labels=labels
    )
    log_start = GaugeMetricFamily(
        "raftlog_partition_log_start_offset", "The oldest record kept here.", labels=labels
    )
    size = GaugeMetricFamily("raftlog_partition_size_bytes", "Bytes of the replica's log.", labels=labels)
    leads = GaugeMetricFamily("raftlog_partition_leader", "Whether this broker leads it.", labels=labels)
    in_sync = GaugeMetricFamily(
        "raftlog_partition_in_sync_replicas", "In-sync replicas, reported by the leader.", labels=labels
    )
    stable_lag = GaugeMetricFamily(
        "raftlog_partition_last_stable_lag",
        "Records that open transactions hide, reported by the leader.",
        labels=labels,
    )
    awaiting = GaugeMetricFamily(
        "raftlog_partition_awaiting_archive_bytes",
        "Bytes that retention keeps only until they are archived, reported by the leader.",
        labels=labels,
    )
    replicas = broker.manager.replicas
    shown = nsmallest(broker.settings.limits.partition_metrics_max, replicas)
    for key in shown:
        replica, named = replicas[key], [key[0], str(key[1])]
        try:
            log = replica.group.log
        except NoLeader:
            continue  # it is being opened
        is_leader = replica.leader == broker.node_id
        high_watermark.add_metric(named, replica.high_watermark)
        log_start.add_metric(named, replica.log_start_offset)
        size.add_metric(named, log.size_bytes)
        leads.add_metric(named, int(is_leader))
        if is_leader:
            in_sync.add_metric(named, len(replica.in_sync()))
            stable_lag.add_metric(named, replica.high_watermark - replica.last_stable_offset)
            awaiting.add_metric(named, broker.retention.awaiting_archive(replica.group.group_id))
    yield from (high_watermark, log_start, size, leads, in_sync, stable_lag, awaiting)
    yield GaugeMetricFamily(
        "raftlog_partitions_not_shown",
        "Replicas omitted because of limits.partition_metrics_max.",
        len(replicas) - len(shown),
    )


def _clock_metrics(broker: Broker) -> Iterator[Metric]:
    """The difference between this wall clock and the broker's time."""
    clock = broker.host.clock
    yield GaugeMetricFamily(
        "raftlog_clock_trusted",
        "1 while the clock is trusted and records are deleted by age.",
        int(clock.is_trusted),
    )
    yield GaugeMetricFamily(
        "raftlog_clock_offset_seconds",
        "Wall clock minus the time that this broker uses.",
        clock.offset_ms / 1000,
    )


def _healing_metrics(broker: Broker) -> Iterator[Metric]:
    """Moves of replicas, reported by the active controller."""
    counts = broker.controller.healing
    yield GaugeMetricFamily(
        "raftlog_partitions_moving",
        "Partitions whose replicas move, from the active controller.",
        counts.moving,
    )
    yield GaugeMetricFamily(
        "raftlog_partitions_to_restore",
        "Partitions with a replica on a dead broker, from the active controller.",
        counts.to_restore,
    )


def _repair_metrics(broker: Broker) -> Iterator[Metric]:
    """Scrubbed bytes, damages and repairs."""
    scrub, repairs = broker.scrubber.counts, broker.repairer.counts
    scheduler = broker.supervisor.scheduler
    yield CounterMetricFamily("raftlog_scrub_bytes", "Bytes scrubbed.", scrub.bytes_read)
    yield CounterMetricFamily(
        "raftlog_scrub_damages", "Damaged files and segments found by the scrub.", scrub.damages_found
    )
    yield GaugeMetricFamily(
        "raftlog_scrub_cycle_ended_seconds",
        "End of the last complete scrub.",
        scrub.last_cycle_ended_ms / 1000,
    )
    compacted = broker.compaction.counts
    yield CounterMetricFamily("raftlog_compaction_bytes", "Bytes read by compaction.", compacted.bytes_read)
    yield CounterMetricFamily(
        "raftlog_compaction_records_removed", "Records removed by compaction.", compacted.records_removed
    )
    yield CounterMetricFamily(
        "raftlog_damaged_logs",
        "Replicas stopped because a read or the scrub found damage.",
        broker.host.damaged_logs,
    )
    yield CounterMetricFamily("raftlog_repairs", "Replicas repaired from peers.", repairs.replicas_repaired)
    yield CounterMetricFamily(
        "raftlog_repairs_failed", "Failed attempts to repair a replica.", repairs.attempts_failed
    )
    yield CounterMetricFamily("raftlog_repair_bytes", "Bytes fetched for repairs.", repairs.bytes_fetched)
    yield GaugeMetricFamily(
        "raftlog_repairs_running",
        "Replicas being repaired.",
        0 if scheduler is None else scheduler.under_repair,
    )
    yield GaugeMetricFamily(
        "raftlog_replicas_needing_operator",
        "Replicas that cannot be repaired, or have broken an invariant.",
        broker.supervisor.counts[HostedState.NEEDS_OPERATOR],
    )
