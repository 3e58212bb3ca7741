"""All metadata of the cluster at one version: an immutable value that all parts of a broker share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from raftlog.types import METADATA_GROUP, GroupId, NodeId, Offset, ProducerId, TopicId

_FIRST_GROUP = GroupId(METADATA_GROUP + 1)
_FIRST_PRODUCER = ProducerId(1)
_FIRST_OFFSET = Offset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker.

    ``incarnation`` changes with each start of its process, and is empty before the first start.
    """

    broker_id: NodeId
    incarnation: str
    http_url: str
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    alive: bool = True
    draining: bool = False
    disk_id: str = ""  # changes whenever its data folder starts empty
    decommissioned: bool = False  # its replicas move to other brokers; always together with ``draining``
    admission_id: str = ""  # of the request that let it join; empty for the first brokers of the cluster
    https_url: str = ""  # of its TLS listener; each of the two URLs is empty without its listener

    def url(self, scheme: str) -> str | None:
        """The URL of the listener of ``http`` or ``https``; None where the broker has no such listener."""
        return (self.https_url if scheme == "https" else self.http_url) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeRecovery:
    """Record of one unsafe recovery: a partition continued without a majority of its replicas."""

    survivor: NodeId
    lost: tuple[NodeId, ...]  # the voters that did not answer
    last_term: int  # at the end of the survivor's log, which was kept
    last_index: int
    commit_index: int  # as the survivor knew it
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition and its replicas; ``replicas[0]`` is the preferred leader.

    ``replicas`` are the voters that a leader last reported; the log of the Raft group has the current voters.
    """

    partition: int
    group_id: GroupId
    replicas: tuple[NodeId, ...]
    target: tuple[NodeId, ...] = ()  # the voters after the current move; empty if none is under way
    added: tuple[NodeId, ...] = ()  # replicas added after the group began, which open without a membership,
    # and all replicas that targets have named since the last target was reached
    membership_index: int = -1  # index of the log entry that made ``replicas`` the voters
    version: int = 0  # the metadata version that last changed this partition
    unsafe_recoveries: tuple[UnsafeRecovery, ...] = ()
    is_decommissioned: bool = False  # refuses records; removed once retention has deleted its last record
    decommission_version: int = 0  # the metadata version that last changed ``is_decommissioned``; 0: none
    first_offset: Offset = _FIRST_OFFSET  # of its log: above the logs of earlier partitions of this number
    earlier_logs: int = 0  # logs of earlier partitions of this number

    @property
    def log_number(self) -> int:
        """Number of the partition's log.

        Each removal and each unsafe recovery of the partition begins another log.
        """
        return self.earlier_logs + len(self.unsafe_recoveries)

    @property
    def all_replicas(self) -> tuple[NodeId, ...]:
        """The brokers that have a replica now or get one by the current move."""
        return (*self.replicas, *(node for node in self.target if node not in self.replicas))

    @property
    def possible_replicas(self) -> frozenset[NodeId]:
        """The brokers that may have a replica, including brokers of replaced targets.

        A leader may have given a replica to a broker of an earlier target without having reported that yet.
        """
        return frozenset((*self.all_replicas, *self.added))

    @property
    def target_replicas(self) -> tuple[NodeId, ...]:
        """The voters that the partition has once no move is under way."""
        return self.target or self.replicas

    def continues(self, earlier: PartitionInfo) -> bool:
        """Whether the partition continues the log of ``earlier``, in its Raft group or after unsafe
        recoveries.
        """
        known = len(earlier.unsafe_recoveries)
        is_recovered = len(self.unsafe_recoveries) > known
        is_after = self.unsafe_recoveries[:known] == earlier.unsafe_recoveries
        is_same_partition = self.earlier_logs == earlier.earlier_logs
        return self.group_id == earlier.group_id or (is_same_partition and is_recovered and is_after)

    def is_initial(self, node: NodeId) -> bool:
        """Whether a new replica on ``node`` starts with the first membership of its Raft group."""
        return node in self.replicas and node not in self.added and self.membership_index < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedPartition:
    """A decommissioned partition that was removed.

    A later partition with its number continues its offsets.
    """

    partition: int
    records_end: Offset  # one past its newest record
    next_offset: Offset  # above all offsets that it has used, so that no offset names two records
    logs: int  # the log number of a later partition of this number


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic. ``version`` is the metadata version of the topic's last change; it is the topic's ETag."""

    name: str
    topic_id: TopicId
    replication_factor: int
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, int | str]  # only what differs from the defaults
    version: int
    creation_id: str = ""  # of the request that created the topic
    shape_version: int = (
        0  # the metadata version that last added, removed, decommissioned or restored partitions
    )
    removed: tuple[RemovedPartition, ...] = ()  # ordered by number

    @property
    def writable_partitions(self) -> int:
        """The number of partitions that accept records: all but the decommissioned partitions at the end."""
        count = len(self.partitions)
        while count and self.partitions[count - 1].is_decommissioned:
            count -= 1
        return count

    def removed_partition(self, number: int) -> RemovedPartition | None:
        """The removed partition with this number, the last if there are several, or None."""
        return next((each for each in self.removed if each.partition == number), None)

    @property
    def is_internal(self) -> bool:
        """Whether the topic is internal: its name starts with two underscores."""
        return self.name.startswith("__")


class PlannedMove(msgspec.Struct, frozen=True, array_like=True):
    """The move of one partition in a plan, from ``replicas`` to ``target``.

    Both lists begin with the preferred leader.
    """

    name: str
    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    target: tuple[NodeId, ...]


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Moves that the controller carries out together, a few at a time."""

    version: int  # of the metadata in which the plan began: its name
    moves: tuple[PlannedMove, ...]
    is_automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata of the cluster. ``version`` rises by at least one with every change and never falls."""

    cluster_id: str = ""  # empty until the first controller has stored it
    bootstrap_id: str = ""  # changes whenever a metadata log starts empty
    version: int = 0
    brokers: Mapping[NodeId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    next_group_id: GroupId = _FIRST_GROUP
    next_producer_id: ProducerId = _FIRST_PRODUCER
    deleted: tuple[str, ...] = ()  # creation ids of the most recently deleted topics
    feature_level: int = 1  # that all brokers support (``features``)
    plan: Plan | None = None  # the plan in progress (``plans``)
    forgotten: Mapping[NodeId, str] = field(default_factory=dict)
    """Removed brokers, each with the id of the request that admitted it. Their ids are never used again."""

    def is_in_use(self, node: NodeId) -> bool:
        """Whether a broker has registered and is not decommissioned.

        True also for a broker not yet in the metadata.
        """
        broker = self.brokers.get(node)
        if broker is None:
            return node not in self.forgotten
        return bool(broker.incarnation) and not broker.decommissioned

    def replicas_on(self, node: NodeId) -> int:
        """The number of replicas that a broker has, gets by current moves, or may have by earlier targets."""
        return sum(
            node in partition.possible_replicas
            for topic in self.topics.values()
            for partition in topic.partitions
        )
