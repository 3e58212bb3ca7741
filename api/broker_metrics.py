"""What a broker knows of itself, as metrics: computed when they are asked for, never kept up.

Most are sums over all groups. Those of single partitions are given for ``limits.partition_metrics_max`` of
them at most, so that ten thousand partitions do not make fifty thousand lines.
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
            sum(group.is_quiescent for group in groups),
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
        yield from _partition_metrics(broker)
        yield from _clock_metrics(broker)
        yield from _repair_metrics(broker)
        yield GaugeMetricFamily(
            "raftlog_metadata_version", "Version of the metadata here.", broker.controller.image.version
        )


def _replica_metrics(broker: Broker) -> Iterator[Metric]:
    """Hosted replicas by their state, and those that do not do all that they should."""
    states = GaugeMetricFamily(
        "raftlog_hosted_replicas", "Replicas on this broker by state.", labels=["state"]
    )
    for state in HostedState:
        states.add_metric([state.value], broker.supervisor.counts[state])
    yield states
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


def _partition_metrics(broker: Broker) -> Iterator[Metric]:
    """The replicas here one by one, in the order of their topics' names, as far as the limit goes."""
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
        "raftlog_partition_in_sync_replicas", "Replicas that keep up, as their leader sees it.", labels=labels
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
        log_start.add_metric(named, log.first_index)
        size.add_metric(named, log.size_bytes)
        leads.add_metric(named, int(is_leader))
        if is_leader:
            in_sync.add_metric(named, len(replica.in_sync()))
    yield from (high_watermark, log_start, size, leads, in_sync)
    yield GaugeMetricFamily(
        "raftlog_partitions_not_shown",
        "Replicas here beyond limits.partition_metrics_max.",
        len(replicas) - len(shown),
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
    """What was read through for damage, and what was repaired."""
    scrub, repairs = broker.scrubber.counts, broker.repairer.counts
    scheduler = broker.supervisor.scheduler
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
    yield CounterMetricFamily("raftlog_repairs", "Replicas repaired from peers.", repairs.replicas_repaired)
    yield CounterMetricFamily(
        "raftlog_repairs_failed", "Attempts that did not succeed.", repairs.attempts_failed
    )
    yield CounterMetricFamily("raftlog_repair_bytes", "Bytes fetched for it.", repairs.bytes_fetched)
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
