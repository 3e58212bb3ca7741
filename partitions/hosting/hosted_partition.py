"""A replica of a partition as a tenant of this broker's hosting.

Decides: the configuration and membership of a replica. Leaves to others: which replicas are hosted
(``replica_manager``), how the log is opened (``opener``), serving (``partitions.replica``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from partitions.hosting.opener import ReplicaOpener, log_settings
from partitions.metadata import topic_config
from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.replica.derived import Derive
from partitions.replica.machine import PartitionMachine
from partitions.replica.participant import JoinTransaction
from partitions.replica.producer_admission import ProducerAdmission
from partitions.replica.replica import PartitionReplica
from partitions.values import Consumed, TopicConfig, consumed_by
from raftlog.clock import Clock
from raftlog.hosting.tenant import CompactionRules
from raftlog.node.blocking import RunBlocking
from raftlog.node.computing import decoded
from raftlog.node.group.applier import Restored, restore_kept
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.records.control import Seal
from raftlog.storage.retention import NO_LIMIT, RetentionLimits
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index, NodeId, TopicPartition

Key = tuple[str, int]  # a topic's name and a partition


@dataclass(frozen=True, slots=True)
class PartitionEnvironment:
    """Parts of a broker that its replicas share. ``replicas`` has the open replicas."""

    host: GroupHost
    opener: ReplicaOpener
    clock: Clock
    run_blocking: RunBlocking
    admission: ProducerAdmission
    replicas: dict[Key, PartitionReplica]
    may_begin: Callable[[], bool]  # whether the hosted replicas match confirmed metadata
    elect_again: Callable[[RaftGroup[None]], None]
    derive: Derive
    join: JoinTransaction | None
    consumed: Mapping[GroupId, Consumed]  # committed offsets in partitions led here, of groups topics name
    hear: Callable[[], Awaitable[None]]  # waits for the newest metadata, before a replica refuses a request


class HostedPartition:
    """``Tenant`` of one replica that the metadata places on this broker."""

    def __init__(
        self,
        around: PartitionEnvironment,
        topic: TopicInfo,
        partition: PartitionInfo,
        *,
        is_leaving: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.group_id: GroupId = partition.group_id
        self.is_leaving = is_leaving  # the metadata places no replica here any more
        self.may_be_deleted = False  # the leader permits the deletion
        self.is_former = False  # a leader is adding it, but it has the log of a removed replica
        self.may_be_emptied = False  # the leader permits deleting that log
        self.replica: PartitionReplica | None = None  # while it takes part
        self._environment = around
        self._log: SegmentedLog | None = None
        self._opened: tuple[PartitionMachine, Restored] | None = None  # from ``open_log`` to ``take_part``

    @property
    def key(self) -> Key:
        """The name of the topic and the number of the partition."""
        return self.topic.name, self.partition.partition

    @property
    def name(self) -> str:
        """The topic and partition as a text, for messages."""
        return str(TopicPartition(*self.key))

    @property
    def directory(self) -> str:
        """The directory of the partition's log."""
        return self._environment.opener.folders.of_partition(self.topic, self.partition.partition)

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """The brokers that have the other replicas, or get one by the current move."""
        return tuple(node for node in self.partition.all_replicas if node != self._environment.host.node_id)

    @property
    def retention(self) -> RetentionLimits:
        """The topic's retention limits.

        Retention never deletes records of open transactions. The newest record is kept unless the partition
        is sealed. If the topic requires an archive, records are kept until they are archived.
        """
        config = settings_of(self.topic)
        if self.replica is None:
            return RetentionLimits(retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT)
        machine = self.replica.machine
        log_start = Index(machine.log_start.offset)
        if not topic_config.deletes(config):
            return RetentionLimits(retention_ms=NO_LIMIT, retention_bytes=NO_LIMIT, log_start=log_start)
        oldest, newest = machine.transactions.oldest, machine.log_start.newest_record
        is_sealed = machine.sealed.newest.is_sealed
        kept_from = None if is_sealed else newest  # a sealed partition may lose its last record
        if oldest is not None:
            kept_from = Index(min(newest, oldest.first_offset))
        return RetentionLimits(
            kept_from=kept_from,
            closed_up_to=newest if is_sealed else None,
            retention_ms=topic_config.number(config, "retention.ms"),
            retention_bytes=topic_config.number(config, "retention.bytes"),
            archived_up_to=(
                Index(machine.archived.offset) if topic_config.requires_archive(config) else None
            ),
            consumed_up_to=self._consumed_up_to(config),
            log_start=log_start,
        )

    def _consumed_up_to(self, config: TopicConfig) -> Index | None:
        known = self._environment.consumed.get(self.group_id)
        consumed = consumed_by(topic_config.consumers(config), known)
        return None if consumed is None else Index(consumed.offset)

    @property
    def compaction(self) -> CompactionRules | None:
        """The compaction rules of the topic; None without compaction or without a replica."""
        config, replica = settings_of(self.topic), self.replica
        if replica is None or not topic_config.compacts(config):
            return None
        machine = replica.machine
        return CompactionRules(
            machine.producers.base_offsets,
            float(config["min.cleanable.dirty.ratio"]),
            topic_config.number(config, "delete.retention.ms"),
            replica.last_stable_offset,
            machine.transactions.aborted,
            joins_segments=not topic_config.deletes(config)
            or topic_config.number(config, "retention.ms") < 0,
            state_has_records=machine.has_derived,
        )

    @property
    def must_begin_empty(self) -> bool:
        """Whether the replica must be added with an empty log instead of its current log.

        The members may have compacted away tombstones beyond the end of that log.
        """
        has_log = self._log is not None and self._log.last_index >= 0
        return has_log and topic_config.compacts(settings_of(self.topic))

    def reconfigure(self, topic: TopicInfo, partition: PartitionInfo, *, is_leaving: bool) -> None:
        """Apply newer metadata. A delete permit stays valid only while the replica is leaving."""
        self.topic, self.partition = topic, partition
        self.is_leaving = is_leaving
        self.may_be_deleted = self.may_be_deleted and is_leaving
        self.is_former = self.may_be_emptied = False
        if self.replica is not None and self._log is not None:
            self.replica.reconfigure(settings_of(topic))
            self._want_seal(self.replica)
            self._log.reconfigure(log_settings(topic))

    async def open_log(self) -> SegmentedLog:
        """Open the log, and restore the newest checkpoint in it. Raises as ``ReplicaOpener.open``."""
        around, topic, partition = self._environment, self.topic, self.partition
        may_begin = around.may_begin()

        def opened() -> tuple[SegmentedLog, tuple[Index, bytes] | None]:
            log = around.opener.open(topic, partition, may_begin=may_begin)
            try:
                return log, log.load_checkpoint()
            except BaseException:
                log.close()
                raise

        log, kept = await around.run_blocking(opened)
        machine = PartitionMachine(around.derive(TopicPartition(*self.key)))
        size_bytes = 0 if kept is None else len(kept[1])
        try:
            self._opened = machine, await decoded(lambda: restore_kept(machine, kept), size_bytes)
        except BaseException:
            await around.run_blocking(log.close)
            raise
        return log

    def take_part(self, log: SegmentedLog) -> None:
        """Open the Raft group; the preferred leader of a new partition calls an election at once."""
        assert self._opened is not None, "``open_log`` comes first"
        around, partition = self._environment, self.partition
        (machine, restored), self._opened = self._opened, None
        replica = PartitionReplica(
            TopicPartition(*self.key),
            partition.replicas,
            settings_of(self.topic),
            around.clock,
            around.admission,
            machine,
            around.join,
            around.hear,
        )
        membership = around.opener.first_membership(partition)
        is_preferred = partition.replicas[0] == around.host.node_id and bool(membership.voters)
        is_young = log.restored(membership).hard_state.term == 0
        group = around.host.open_group(
            self.group_id,
            log,
            machine,
            membership,
            replica,
            campaign_first=is_preferred,
            is_internal=self.topic.is_internal,
            restored=restored,
        )
        replica.attach(group)
        self._want_seal(replica)
        self.replica, self._log = replica, log
        around.replicas[self.key] = replica
        if is_preferred and is_young and len(partition.replicas) > 1:
            around.elect_again(group)

    def _want_seal(self, replica: PartitionReplica) -> None:
        partition = self.partition
        seal = Seal(partition.is_decommissioned, partition.decommission_version)
        replica.want_seal(seal, self.topic.writable_partitions)

    async def leave(self) -> None:
        """Stop serving: from now on requests for the partition find no replica on this broker."""
        if self.replica is not None:
            del self._environment.replicas[self.key]
            self.replica.leave()
        self.replica = self._log = None


def settings_of(topic: TopicInfo) -> dict[str, int | str]:
    """All settings of a topic, with ``majority`` as a word, because the number of replicas may change."""
    return {**topic_config.DEFAULTS, **topic.config}
