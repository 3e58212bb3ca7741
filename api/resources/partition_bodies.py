"""Describes a partition as JSON: its state according to the leader, and its target replicas."""

from __future__ import annotations

from typing import Literal

from api.http.routes import Call
from partitions.metadata.image import PartitionInfo
from partitions.values import PartitionStatus
from raftlog.errors import NoLeader, TopicNotFound
from raftlog.types import NodeId, TopicPartition
from raftlog.wire import bodies


async def described(call: Call, target: TopicPartition) -> bodies.PartitionDescription:
    """Describe one partition, with this broker's newest metadata.

    Raises ``NoLeader`` while the partition is being opened.
    """
    statuses = await call.services.gateway.describe(target.topic, (target.partition,))
    topic = call.services.controller.image.topics.get(target.topic)
    if topic is None:
        raise TopicNotFound(f"there is no topic {target.topic!r}", topic=target.topic)
    for status in statuses:
        if status.partition == target.partition:
            if target.partition >= len(topic.partitions):
                break  # the partition was removed during the request
            return body(status, topic.partitions[target.partition])
    raise NoLeader(f"{target} is being opened; retry", topic=target.topic, partition=target.partition)


def body(status: PartitionStatus, info: PartitionInfo) -> bodies.PartitionDescription:
    """Return the description of one partition as JSON."""
    return bodies.PartitionDescription(
        partition=status.partition,
        leader=status.leader,
        leader_epoch=status.term,
        replicas=_in_order(status.replicas, info),
        learners=list(status.learners),
        in_sync=list(status.in_sync),
        commit_index=status.commit_index,
        log_start_offset=status.log_start_offset,
        high_watermark=status.high_watermark,
        log_end_offset=status.log_end_offset,
        size_bytes=status.size_bytes,
        rejoining=list(status.rejoining),
        awaited=list(status.awaited),
        offline=[bodies.OfflineReplica(broker, reason) for broker, reason in status.offline],
        reassignment=_reassignment(status, info),
        last_stable_offset=status.last_stable_offset,
        readers_held_ms=status.readers_held_ms,
        archived_up_to=status.archived_up_to,
        awaiting_archive_bytes=status.awaiting_archive_bytes,
        consumed_up_to=status.consumed_up_to,
        held_back_by=status.held_back_by,
        state=_state(status, info),
        records_end=status.records_end,
        unsafe_recoveries=[
            bodies.UnsafeRecovery(
                survivor=record.survivor,
                lost=list(record.lost),
                last_offset=record.last_index,
                committed_offset=record.commit_index,
                recovered_at=record.at_ms,
            )
            for record in info.unsafe_recoveries
        ],
    )


def _state(status: PartitionStatus, info: PartitionInfo) -> Literal["active", "sealing", "decommissioned"]:
    if not info.is_decommissioned:
        return "active"
    return "decommissioned" if status.is_sealed else "sealing"


def _in_order(voters: tuple[NodeId, ...], info: PartitionInfo) -> list[int]:
    """Return the voters of a partition, the preferred leader first."""
    known: list[int] = [node for node in info.all_replicas if node in voters]
    return known + sorted(set(voters) - set(known))


def _reassignment(status: PartitionStatus, info: PartitionInfo) -> bodies.Reassignment | None:
    if not info.target:
        return None
    missing = set(info.target) - set(status.replicas)
    if not missing:
        return bodies.Reassignment(list(info.target), "changing", 100)
    if missing <= set(status.learners):
        return bodies.Reassignment(list(info.target), "learning", status.caught_up_percent)
    return bodies.Reassignment(list(info.target), "preparing", 0)
