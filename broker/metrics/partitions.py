"""Metrics of a broker's parts, computed when a scrape collects them.

Most metrics are sums over all Raft groups. At most ``limits.partition_metrics_max`` partitions are listed one
by one, because ten thousand partitions would need fifty thousand lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import nsmallest
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.broker import Broker
from broker.metrics.exposition import PAUSE, steps
from partitions.replica.replica import PartitionReplica
from partitions.routing.traffic import Counted
from raftlog.core.ready import Role
from raftlog.errors import NoLeader
from raftlog.hosting.hosted_replica import HostedState
from raftlog.node.group.raft_group import RaftGroup


class BrokerMetrics(Collector):
    """Collector of the metrics of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        broker = self._broker
        yield from _group_metrics(broker)
        flusher = broker.host.flusher
        yield CounterMetricFamily("raftlog_sync_rounds", "Rounds of syncs.", flusher.rounds)
        yield CounterMetricFamily(
            "raftlog_syncs", "Syncs of single logs; a round has several.", flusher.syncs
        )
        durations = HistogramMetricFamily(
            "raftlog_sync_round_seconds", "Time from the start of a round of syncs to its end."
        )
        durations.add_metric([], flusher.durations.buckets, flusher.durations.sum_s)
        yield durations
        elections = broker.host.elections
        yield CounterMetricFamily(
            "raftlog_elections_started", "Elections in which this broker was a candidate.", elections.started
        )
        yield CounterMetricFamily("raftlog_elections_won", "Elections that this broker won.", elections.won)
        yield from _traffic_metrics(broker)
        yield from _disk_metrics(broker)
        yield from _replica_metrics(broker)
        yield from _partition_metrics(broker)
        yield from _clock_metrics(broker)
        yield from _repair_metrics(broker)
        yield from _healing_metrics(broker)
        yield from _metadata_metrics(broker)


class _Sums:
    """Sums over all Raft groups of a broker."""

    def __init__(self) -> None:
        self.roles = Counter[str]()
        self.quiescent = self.log_bytes = self.uncommitted = self.rejoining = 0

    def add(self, group: RaftGroup[object]) -> None:
        """Add the values of one Raft group to the sums."""
        self.roles["stopped" if group.stopped else group.role.value] += 1
        self.quiescent += group.is_quiescent
        self.log_bytes += group.log.size_bytes
        self.uncommitted += max(0, group.last_index - group.commit_index)
        self.rejoining += group.is_rejoining


def _group_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield sums over the Raft groups of this broker."""
    sums, awaiting_archive = _Sums(), 0
    for some in steps([*broker.host.groups.values()]):
        for group in some:
            sums.add(group)
            awaiting_archive += broker.retention.awaiting_archive(group.group_id)
        yield PAUSE
    roles = GaugeMetricFamily("raftlog_raft_groups", "Raft groups by this broker's role.", labels=["role"])
    for role in [*(role.value for role in Role), "stopped"]:
        roles.add_metric([role], sums.roles[role])
    yield roles
    yield GaugeMetricFamily("raftlog_raft_groups_quiescent", "Quiescent groups.", sums.quiescent)
    yield GaugeMetricFamily("raftlog_log_bytes", "Bytes of all logs.", sums.log_bytes)
    yield GaugeMetricFamily(
        "raftlog_awaiting_archive_bytes",
        "Bytes of logs led here that retention keeps only until they are archived.",
        awaiting_archive,
    )
    yield GaugeMetricFamily(
        "raftlog_uncommitted_records", "Indexes above the commit index.", sums.uncommitted
    )
    yield GaugeMetricFamily(
        "raftlog_uncommitted_bytes",
        "Uncommitted bytes in logs led here; bounded by limits.uncommitted_bytes_max.",
        broker.host.uncommitted.total,
    )
    yield GaugeMetricFamily(
        "raftlog_rejoining_replicas",
        "Replicas that lost files and count towards no majority yet.",
        sums.rejoining,
    )


_BY_TOPIC: Final[tuple[tuple[str, str, Callable[[Counted], int]], ...]] = (
    ("bytes_in", "Bytes of batches appended through this broker", attrgetter("bytes_in")),
    ("records_in", "Records appended through this broker", attrgetter("records_in")),
    ("bytes_out", "Bytes of batches read through this broker", attrgetter("bytes_out")),
)


def _traffic_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield the bytes and records that were appended and read: of the broker, and of each topic up to the
    limit.
    """
    traffic, existing = broker.gateway.traffic, broker.controller.image.topics
    for name, text, value_of in _BY_TOPIC:
        yield CounterMetricFamily(f"raftlog_{name}", f"{text}.", value_of(traffic.all))
    yield PAUSE
    shown = nsmallest(
        broker.settings.limits.partition_metrics_max, (name for name in traffic.topics if name in existing)
    )
    for name, text, value_of in _BY_TOPIC:
        family = CounterMetricFamily(f"raftlog_topic_{name}", f"{text}, by topic.", labels=["topic"])
        for some in steps(shown):
            for topic in some:
                if (counted := traffic.topics.get(topic)) is not None:
                    family.add_metric([topic], value_of(counted))
            yield PAUSE
        yield family


def _disk_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield metrics of this broker's disk, and the number of other brokers that were refused because their
    disk is an older copy.
    """
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
    """Yield the metadata version of this broker, and counts of the metadata group's members."""
    yield GaugeMetricFamily(
        "raftlog_metadata_version", "Version of the broker's metadata.", broker.controller.image.version
    )
    yield GaugeMetricFamily(
        "raftlog_active_controller",
        "1 on the active controller.",
        int(broker.controller.leader == broker.node_id),
    )
    peers = set(broker.controller.image.brokers) - {broker.node_id}
    yield GaugeMetricFamily(
        "raftlog_peers_not_heard",
        "Other brokers of the cluster that this broker does not hear.",
        sum(not broker.host.is_reachable(peer) for peer in peers),
    )
    members = broker.controller.members
    yield GaugeMetricFamily(
        "raftlog_metadata_voters", "Brokers that elect the controller.", len(members.voters)
    )
    yield GaugeMetricFamily(
        "raftlog_metadata_learners", "Other brokers that get the metadata.", len(members.learners)
    )


def _replica_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield hosted replicas by state, failed replicas, and sums over the partitions."""
    counts = broker.supervisor.counts
    states = GaugeMetricFamily(
        "raftlog_hosted_replicas", "Replicas on this broker by state.", labels=["state"]
    )
    for state in HostedState:
        states.add_metric([state.value], counts[state])
    yield states
    yield GaugeMetricFamily(
        "raftlog_replicas_needing_operator",
        "Replicas that cannot be repaired, or have broken an invariant.",
        counts[HostedState.NEEDS_OPERATOR],
    )
    yield GaugeMetricFamily(
        "raftlog_failed_replicas",
        "Replicas that should serve here and do not.",
        len(broker.manager.failures),
    )
    producers = leaderless = under_replicated = 0
    for some in steps([*broker.manager.replicas.values()]):
        for replica in some:
            producers += replica.producers
            leaderless += replica.leader is None
            under_replicated += replica.lacks_replicas
        yield PAUSE
    yield GaugeMetricFamily("raftlog_producers", "Producer entries of the replicas here.", producers)
    yield GaugeMetricFamily(
        "raftlog_leaderless_partitions",
        "Partitions with a replica here for which this broker knows no leader.",
        leaderless,
    )
    yield GaugeMetricFamily(
        "raftlog_under_replicated_partitions",
        "Partitions led here of which a replica is not in sync.",
        under_replicated,
    )


_BY_PARTITION: Final = (
    ("high_watermark", "One past the newest record that can be read."),
    ("log_start_offset", "The oldest record kept here."),
    ("size_bytes", "Bytes of the replica's log."),
    ("leader", "Whether this broker leads it."),
    ("in_sync_replicas", "In-sync replicas, reported by the leader."),
    ("last_stable_lag", "Records that open transactions hide, reported by the leader."),
    (
        "awaiting_archive_bytes",
        "Bytes that retention keeps only until they are archived, reported by the leader.",
    ),
)


def _partition_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield metrics of each replica, ordered by topic name, up to the limit."""
    families = [
        GaugeMetricFamily(f"raftlog_partition_{name}", text, labels=["topic", "partition"])
        for name, text in _BY_PARTITION
    ]
    replicas = broker.manager.replicas
    shown = nsmallest(broker.settings.limits.partition_metrics_max, replicas)
    yield PAUSE
    for some in steps(shown):
        for key in some:
            if (replica := replicas.get(key)) is not None:  # it may have been closed since the last turn
                named = [key[0], str(key[1])]
                for family, value in zip(families, _partition_values(broker, replica), strict=False):
                    family.add_metric(named, value)
        yield PAUSE
    yield from families
    yield GaugeMetricFamily(
        "raftlog_partitions_not_shown",
        "Replicas omitted because of limits.partition_metrics_max.",
        max(0, len(replicas) - len(shown)),
    )


def _partition_values(broker: Broker, replica: PartitionReplica) -> Iterator[float]:
    """Yield the values of ``_BY_PARTITION``: all values on the leader, no value while the replica is being
    opened.
    """
    try:
        group = replica.group
    except NoLeader:
        return
    is_leader = replica.leader == broker.node_id
    yield from (replica.high_watermark, replica.log_start_offset, group.log.size_bytes, is_leader)
    if is_leader:
        yield len(replica.in_sync())
        yield replica.high_watermark - replica.last_stable_offset
        yield broker.retention.awaiting_archive(group.group_id)


def _clock_metrics(broker: Broker) -> Iterator[Metric]:
    """Yield the difference between this broker's wall clock and the time that the broker uses for
    timestamps.
    """
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
    """Yield counts of partitions whose replicas move or must be restored, as the active controller knows
    them.
    """
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
    """Yield counts of scrubbed bytes, damages and repairs."""
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
    yield CounterMetricFamily(
        "raftlog_duty_failures",
        "Unexpected errors of work in the background, which began again.",
        broker.host.duties.failures,
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
