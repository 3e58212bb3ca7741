"""Effects of commands about replicas on the metadata: target, voters, and unsafe recovery.

Decides: which reports of a leader change the metadata, which replicas begin without a membership, and that a
recovered partition becomes another group. Leaves to others: which targets are allowed (``move_planner``), and
carrying out the moves (``partitions.reassignment.reassigner``). Pure and total, like ``machine``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from partitions.metadata.commands import RecoveredUnsafely, ReplicasChanged, SetReplicas
from partitions.metadata.features import FORGETTING
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo, UnsafeRecovery
from raftlog.errors import InvalidRequest, PartitionNotFound, PreconditionFailed, RaftlogError, TopicNotFound
from raftlog.types import GroupId, NodeId, TopicId
from raftlog.wire.limits import REPLICATION_FACTORS

Applied = tuple[MetadataImage, TopicInfo | RaftlogError]


def set_replicas(image: MetadataImage, command: SetReplicas, version: int) -> Applied:
    """Set a target.

    A replica on a broker that is not among the reported voters begins without a membership.
    """
    found = _find(image, command)
    if isinstance(found, RaftlogError):
        return image, found
    topic, partition = found
    wanted = command.replicas
    if partition.target_replicas != command.expected:
        return image, PreconditionFailed(
            f"the target of {command.name}/{command.partition} is {list(partition.target_replicas)}, "
            f"not {list(command.expected)}; read it and try again",
            topic=command.name,
            partition=command.partition,
        )
    if not wanted or len(set(wanted)) != len(wanted) or not image.brokers.keys() >= set(wanted):
        return image, InvalidRequest(
            f"replicas are {list(wanted)}; name different registered brokers", field="replicas"
        )
    if set(wanted) == set(partition.replicas) and not partition.target:
        return _with_partition(image, topic, replace(partition, replicas=wanted, version=version), version)
    earlier = partition.target if image.feature_level >= FORGETTING else ()
    new = {*wanted, *earlier} - {*partition.replicas, *partition.added}
    moved = replace(partition, target=wanted, added=(*partition.added, *sorted(new)), version=version)
    return _with_partition(image, topic, moved, version)


def replicas_changed(image: MetadataImage, command: ReplicasChanged, version: int) -> Applied:
    """Store the voters that a leader reports. A report older than the stored one changes nothing.

    The report must name the version of the current target: a late report about an earlier target may name
    equal brokers although the group's membership has changed since.
    """
    found = _find(image, command)
    if isinstance(found, RaftlogError):
        return image, found
    topic, partition = found
    if command.group_id != partition.group_id or command.membership_index < partition.membership_index:
        return image, topic
    voters = set(command.replicas)
    if not voters:
        return image, InvalidRequest("replicas is empty; a partition has at least one", field="replicas")
    arrived = voters == set(partition.target) and command.target_version == partition.version
    if not arrived and command.membership_index == partition.membership_index:
        return image, topic
    order = partition.target if arrived else command.replicas
    target = () if arrived else partition.target
    remembers = bool(target) and image.feature_level >= FORGETTING
    kept = partition.added if remembers else target
    changed = replace(
        partition,
        replicas=order,
        target=target,
        added=tuple(node for node in partition.added if _begins(node, voters, kept, command)),
        membership_index=command.membership_index,
        version=version,
    )
    if replace(changed, version=partition.version) == partition:
        return image, topic
    image, topic = _with_partition(image, topic, changed, version)
    return _with_factor_of_replicas(image, topic) if arrived else (image, topic)


def _with_factor_of_replicas(image: MetadataImage, topic: TopicInfo) -> tuple[MetadataImage, TopicInfo]:
    """Adjust the topic's replication factor to its partitions.

    The factor rises once all partitions have more replicas, and falls once all have fewer.
    """
    counts = [len(partition.replicas) for partition in topic.partitions]
    fewest, most = _factor_of(min(counts)), _factor_of(max(counts))
    changed = replace(topic, replication_factor=min(max(topic.replication_factor, fewest), most))
    return replace(image, topics={**image.topics, topic.name: changed}), changed


def _factor_of(replicas: int) -> int:
    return max(factor for factor in REPLICATION_FACTORS if factor <= replicas)


def recovered_unsafely(image: MetadataImage, command: RecoveredUnsafely, version: int) -> Applied:
    """Replace the partition's group by a new group in which the survivor begins alone.

    A recovery that names a replaced group is refused.
    """
    found = _find(image, command)
    if isinstance(found, RaftlogError):
        return image, found
    topic, partition = found
    if command.group_id != partition.group_id:
        return image, PreconditionFailed(
            f"{command.name}/{command.partition} was already recovered; read it again",
            topic=command.name,
            partition=command.partition,
        )
    remembers = image.feature_level >= FORGETTING
    if command.survivor not in (partition.possible_replicas if remembers else partition.all_replicas):
        return image, InvalidRequest(
            f"broker {command.survivor} holds no replica of {command.name}/{command.partition}",
            field="survivor",
        )
    record = UnsafeRecovery(
        survivor=command.survivor,
        lost=command.lost,
        last_term=command.last_term,
        last_index=command.last_index,
        commit_index=command.commit_index,
        at_ms=command.at_ms,
    )
    recovered = replace(
        partition,
        group_id=image.next_group_id,
        replicas=(command.survivor,),
        target=(),
        added=(),
        membership_index=-1,
        version=version,
        unsafe_recoveries=(*partition.unsafe_recoveries, record),
    )
    image, reply = _with_partition(image, topic, recovered, version)
    return replace(image, next_group_id=GroupId(image.next_group_id + 1)), reply


def disk_replaced(image: MetadataImage, broker: NodeId, version: int) -> MetadataImage:
    """Mark all replicas of a broker as added: the replaced disk had their files."""

    def begins_anew(partition: PartitionInfo) -> PartitionInfo:
        if broker not in partition.all_replicas or broker in partition.added:
            return partition
        return replace(partition, added=(*partition.added, broker), version=version)

    return _with_all_partitions(image, begins_anew, version)


def _begins(node: NodeId, voters: set[NodeId], kept: tuple[NodeId, ...], report: ReplicasChanged) -> bool:
    """Whether a replica stays in ``added``: it does not vote yet, or the first membership is in force.

    ``kept`` are the replicas without a vote that stay; before the target is reached, replicas of earlier
    targets are included.
    """
    return report.membership_index < 0 if node in voters else node in kept


class _AboutPartition(Protocol):
    """The fields of a command that name its partition."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def topic_id(self) -> TopicId:
        """The topic's id, which distinguishes it from earlier topics with an equal name."""

    @property
    def partition(self) -> int:
        """The partition's number."""


def _find(
    image: MetadataImage, command: _AboutPartition
) -> tuple[TopicInfo, PartitionInfo] | TopicNotFound | PartitionNotFound:
    topic = image.topics.get(command.name)
    if topic is None or topic.topic_id != command.topic_id:
        return TopicNotFound(f"there is no topic {command.name!r} of that id", topic=command.name)
    if not 0 <= command.partition < len(topic.partitions):
        return PartitionNotFound(
            f"topic {command.name!r} has no partition {command.partition}",
            topic=command.name,
            partition=command.partition,
        )
    return topic, topic.partitions[command.partition]


def _with_partition(
    image: MetadataImage, topic: TopicInfo, partition: PartitionInfo, version: int
) -> tuple[MetadataImage, TopicInfo]:
    """Replace one partition.

    The topic's own version (its ETag) stays, because its configuration does not change.
    """
    at = partition.partition
    changed = replace(topic, partitions=(*topic.partitions[:at], partition, *topic.partitions[at + 1 :]))
    return replace(image, topics={**image.topics, topic.name: changed}, version=version), changed


def _with_all_partitions(
    image: MetadataImage, change: Callable[[PartitionInfo], PartitionInfo], version: int
) -> MetadataImage:
    topics = dict(image.topics)
    for name, topic in image.topics.items():
        partitions = tuple(change(partition) for partition in topic.partitions)
        if partitions != topic.partitions:
            topics[name] = replace(topic, partitions=partitions)
    return replace(image, topics=topics, version=version)
