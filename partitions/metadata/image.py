"""All metadata at one version: immutable, shared by everything in a broker that needs to know."""

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
    """One broker. ``incarnation`` is new whenever its process starts, and empty until it has registered."""

    broker_id: NodeId
    incarnation: str
    http_url: str
    rpc_host: str
    rpc_port: int
    rack: str | None = None
    alive: bool = True
    draining: bool = False
    disk_id: str = ""  # new whenever its data folder begins from nothing
    decommissioned: bool = False  # its replicas move to other brokers, for good; always with ``draining``
    admission_id: str = ""  # of the request that let it join; empty for those that the cluster began with


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeRecovery:
    """One time that a partition was recovered without its majority: what was known of the loss."""

    survivor: NodeId
    lost: tuple[NodeId, ...]  # the voters that could not be asked
    last_term: int  # the end of the survivor's log, which was kept
    last_index: int
    commit_index: int  # as far as the survivor knew
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition and its replicas; ``replicas[0]`` is the preferred leader.

    ``replicas`` are the voters that a leader last reported; the present ones stand in the group's own log.
    """

    partition: int
    group_id: GroupId
    replicas: tuple[NodeId, ...]
    target: tuple[NodeId, ...] = ()  # the voters after the move; empty without one
    added: tuple[NodeId, ...] = ()  # younger than the group: they open without a membership; and all that
    # a target has named since the last one was reached
    membership_index: int = -1  # where in the log the membership stands of which ``replicas`` tells
    version: int = 0  # the metadata version that last changed any of this
    unsafe_recoveries: tuple[UnsafeRecovery, ...] = ()
    is_decommissioned: bool = False  # it takes no records, and is removed once retention has deleted its last
    decommission_version: int = 0  # the metadata version that last changed that; 0: none has
    first_offset: Offset = _FIRST_OFFSET  # of its log: behind all logs of earlier partitions of this number
    earlier_logs: int = 0  # of such partitions

    @property
    def log_number(self) -> int:
        """Which log of this number it has: each removal and each unsafe recovery begins another."""
        return self.earlier_logs + len(self.unsafe_recoveries)

    @property
    def all_replicas(self) -> tuple[NodeId, ...]:
        """The brokers that have a replica, or shall have one."""
        return (*self.replicas, *(node for node in self.target if node not in self.replicas))

    @property
    def possible_replicas(self) -> frozenset[NodeId]:
        """The brokers that may have a replica, also of targets that were changed before they were reached.

        A leader that was told of such a target may have reached it, and not have reported it yet.
        """
        return frozenset((*self.all_replicas, *self.added))

    @property
    def target_replicas(self) -> tuple[NodeId, ...]:
        """The voters once no move is under way."""
        return self.target or self.replicas

    def continues(self, earlier: PartitionInfo) -> bool:
        """Whether the partition continues the log of ``earlier``, in its group or after unsafe recoveries."""
        known = len(earlier.unsafe_recoveries)
        is_recovered = len(self.unsafe_recoveries) > known
        is_after = self.unsafe_recoveries[:known] == earlier.unsafe_recoveries
        is_same_partition = self.earlier_logs == earlier.earlier_logs
        return self.group_id == earlier.group_id or (is_same_partition and is_recovered and is_after)

    def is_initial(self, node: NodeId) -> bool:
        """Whether a first replica there begins with the group's first membership."""
        return node in self.replicas and node not in self.added and self.membership_index < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedPartition:
    """A partition that was decommissioned and is no more. A later one of its number continues its offsets."""

    partition: int
    records_end: Offset  # one past its newest record
    next_offset: Offset  # above all that it has had, so that no offset ever names two records
    logs: int  # the log number of a later partition of this number


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic. ``version`` is the metadata version that last changed it (its ETag)."""

    name: str
    topic_id: TopicId
    replication_factor: int
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, int | str]  # only what differs from the defaults
    version: int
    creation_id: str = ""  # of the request that made it
    shape_version: int = (
        0  # the metadata version that last changed which partitions there are, or take records
    )
    removed: tuple[RemovedPartition, ...] = ()  # by number

    @property
    def writable_partitions(self) -> int:
        """The number of partitions that take records: all but the last ones, which are decommissioned."""
        count = len(self.partitions)
        while count and self.partitions[count - 1].is_decommissioned:
            count -= 1
        return count

    def removed_partition(self, number: int) -> RemovedPartition | None:
        """The partition that last had this number, if it was removed."""
        return next((each for each in self.removed if each.partition == number), None)

    @property
    def is_internal(self) -> bool:
        """Names that start with two underscores are the system's own."""
        return self.name.startswith("__")


class PlannedMove(msgspec.Struct, frozen=True, array_like=True):
    """One partition of a plan: its replicas, and those that it shall have, preferred leader first."""

    name: str
    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    target: tuple[NodeId, ...]


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Moves that are carried out together, a few at a time."""

    version: int  # of the metadata in which it began: its name
    moves: tuple[PlannedMove, ...]
    is_automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata of the cluster. ``version`` rises by at least one with every change and never falls."""

    cluster_id: str = ""  # empty until the first controller has written it down
    bootstrap_id: str = ""  # new whenever a metadata log begins from nothing
    version: int = 0
    brokers: Mapping[NodeId, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    next_group_id: GroupId = _FIRST_GROUP
    next_producer_id: ProducerId = _FIRST_PRODUCER
    deleted: tuple[str, ...] = ()  # creation ids of the topics that were deleted last
    feature_level: int = 1  # what all brokers understand (``features``)
    plan: Plan | None = None  # that is being carried out (``plans``)
    forgotten: Mapping[NodeId, str] = field(default_factory=dict)
    """Brokers that were removed for good, with the request that admitted each. No id is given again."""

    def is_in_use(self, node: NodeId) -> bool:
        """Whether a broker has registered and is not decommissioned, or is not known yet."""
        broker = self.brokers.get(node)
        if broker is None:
            return node not in self.forgotten
        return bool(broker.incarnation) and not broker.decommissioned

    def replicas_on(self, node: NodeId) -> int:
        """The number of replicas that a broker has, shall have, or may have."""
        return sum(
            node in partition.possible_replicas
            for topic in self.topics.values()
            for partition in topic.partitions
        )
