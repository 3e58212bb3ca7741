"""Effects of commands about decommissioned partitions: which take records, and which are no more.

Decides: that only the last partitions of a topic are decommissioned or removed, and what is kept of a removed
one. Leaves to others: which requests make sense (``shrink_planner``), when a partition has no record left
(``partitions.reassignment.removal``). Pure and total, as ``machine`` is.

Keys map to partitions 0 to n - 1, so a topic loses its last partitions first. A partition that is added later
under the number of a removed one is another Raft group, with its first offset behind those of the former: no
offset names two records, and committed offsets of the former lie below the log start of the later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from partitions.metadata.commands import DecommissionPartitions, RemovePartition
from partitions.metadata.image import MetadataImage, PartitionInfo, RemovedPartition, TopicInfo
from raftlog.errors import InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import GroupId, NodeId, Offset

Applied = tuple[MetadataImage, TopicInfo | RaftlogError]

OFFSETS_RESERVED: Final = 1_000  # for control entries of later leaders, until all know of the removal


def decommission(
    image: MetadataImage, topic: TopicInfo, command: DecommissionPartitions, version: int
) -> Applied:
    """A request that was carried out already, or whose goal another one has reached, changes nothing."""
    writable = topic.writable_partitions
    if command.writable == writable:
        return image, topic
    if (writable, topic.shape_version) != (command.expected, command.expected_shape):
        return image, shape_has_changed(topic)
    if not 1 <= command.writable <= len(topic.partitions):
        return image, InvalidRequest(
            f"{command.writable} of {len(topic.partitions)} partitions cannot take records", field="writable"
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
    """Remove the last partition of a topic, if it matches the command and is still decommissioned."""
    at = len(topic.partitions) - 1
    partition = topic.partitions[at]
    if command.partition > at:
        return image, topic  # its leader asks again, not having heard the answer
    found = (partition.partition, partition.group_id, partition.decommission_version)
    if found != (command.partition, command.group_id, command.decommission_version):
        return image, PreconditionFailed(
            f"{topic.name}/{command.partition} is not the last partition, or another one by now",
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
    """Partitions from number ``first`` on, each with the next group id, and behind removed ones."""
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
    """The error for a request that was made for other partitions than there are."""
    return PreconditionFailed(
        f"the partitions of topic {topic.name!r} have changed: it has {len(topic.partitions)}, of which "
        f"{topic.writable_partitions} take records; read it again",
        topic=topic.name,
        partitions=len(topic.partitions),
        writable_partitions=topic.writable_partitions,
    )


def _with_topic(image: MetadataImage, topic: TopicInfo) -> Applied:
    return replace(image, topics={**image.topics, topic.name: topic}, version=topic.version), topic
