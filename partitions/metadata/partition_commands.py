"""Effects of commands that decommission and remove partitions of a topic.

Decides: that only the last partitions of a topic are decommissioned or removed, and which facts about a
removed partition are kept. Leaves to others: which requests are allowed (``shrink_planner``), when a
partition has no record left (``partitions.reassignment.removal``). Pure and total, like ``machine``.

Keys map to partitions 0 to n - 1, so a topic loses its last partitions first. A partition added later under
the number of a removed partition is a new Raft group whose first offset is above all offsets of the removed
one: no offset names two records, and old committed offsets are below the log start of the new partition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from partitions.metadata.commands import DecommissionPartitions, RemovePartition
from partitions.metadata.image import MetadataImage, PartitionInfo, RemovedPartition, TopicInfo
from raftlog.errors import InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import GroupId, NodeId, Offset

Applied = tuple[MetadataImage, TopicInfo | RaftlogError]

OFFSETS_RESERVED: Final = 1_000  # for control entries of leaders that do not know of the removal yet


def decommission(
    image: MetadataImage, topic: TopicInfo, command: DecommissionPartitions, version: int
) -> Applied:
    """Set which partitions accept records; a repeated request changes nothing."""
    writable = topic.writable_partitions
    if command.writable == writable:
        return image, topic
    if (writable, topic.shape_version) != (command.expected, command.expected_shape):
        return image, shape_has_changed(topic)
    if not 1 <= command.writable <= len(topic.partitions):
        return image, InvalidRequest(
            f"writable is {command.writable}; choose 1 to {len(topic.partitions)} partitions",
            field="writable",
        )
    partitions = [
        replace(
            partition,
            is_decommissioned=partition.partition >= command.writable,
            decommission_version=version,
        )
        if partition.is_decommissioned != (partition.partition >= command.writable)
        else partition
        for partition in topic.partitions
    ]
    return _with_topic(
        image, replace(topic, partitions=tuple(partitions), version=version, shape_version=version)
    )


def remove(image: MetadataImage, topic: TopicInfo, command: RemovePartition, version: int) -> Applied:
    """Remove the last partition of a topic if it matches the command and is still decommissioned."""
    at = len(topic.partitions) - 1
    partition = topic.partitions[at]
    if command.partition > at:
        return image, topic  # a repeated request of its leader
    found = (partition.partition, partition.group_id, partition.decommission_version)
    if found != (command.partition, command.group_id, command.decommission_version):
        return image, PreconditionFailed(
            f"{topic.name}/{command.partition} is not the last partition, or has been replaced by another",
            topic=topic.name,
            partition=command.partition,
        )
    if not partition.is_decommissioned or not at:
        return image, PreconditionFailed(
            f"{topic.name}/{command.partition} is not decommissioned",
            topic=topic.name,
            partition=command.partition,
        )
    removed = RemovedPartition(
        partition=at,
        records_end=command.records_end,
        next_offset=Offset(max(partition.first_offset, command.end_offset) + OFFSETS_RESERVED),
        logs=partition.log_number + 1,
    )
    others = (each for each in topic.removed if each.partition != at)
    return _with_topic(
        image,
        replace(
            topic,
            partitions=topic.partitions[:at],
            removed=tuple(sorted((*others, removed), key=lambda each: each.partition)),
            version=version,
            shape_version=version,
        ),
    )


def new_partitions(
    image: MetadataImage,
    first: int,
    placement: tuple[tuple[NodeId, ...], ...],
    removed: tuple[RemovedPartition, ...] = (),
) -> tuple[PartitionInfo, ...]:
    """Make new partitions, numbered from ``first``.

    Offsets of a partition in ``removed`` continue in its successor.
    """
    former = {each.partition: each for each in removed}
    made: list[PartitionInfo] = []
    for number, row in enumerate(placement):
        partition = PartitionInfo(
            partition=first + number, group_id=GroupId(image.next_group_id + number), replicas=row
        )
        if (before := former.get(partition.partition)) is not None:
            partition = replace(partition, first_offset=before.next_offset, earlier_logs=before.logs)
        made.append(partition)
    return tuple(made)


def shape_has_changed(topic: TopicInfo) -> PreconditionFailed:
    """The error for a request that expects other numbers of partitions than the topic has."""
    return PreconditionFailed(
        f"the partitions of topic {topic.name!r} have changed: it has {len(topic.partitions)}, of which "
        f"{topic.writable_partitions} accept records; read the topic and try again",
        topic=topic.name,
        partitions=len(topic.partitions),
        writable_partitions=topic.writable_partitions,
    )


def _with_topic(image: MetadataImage, topic: TopicInfo) -> Applied:
    return replace(image, topics={**image.topics, topic.name: topic}, version=topic.version), topic
