"""Turns a request to decommission or recommission partitions into a command.

Decides: which partitions may be decommissioned, and why other requests are refused. Leaves to others: which
of two requests wins (``partition_commands``). Pure, like ``planner``.
"""

from __future__ import annotations

import msgspec

from partitions.metadata.commands import DecommissionPartitions
from partitions.metadata.features import DECOMMISSIONED_PARTITIONS, check_feature
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import find_topic
from raftlog.errors import Conflict, InvalidRequest, PartitionNotFound
from raftlog.types import TopicId
from raftlog.units import counted

BY_NUMBER = "keys map to the partitions 0 to n - 1, so a topic loses its last partitions first"


class ShrinkTopic(msgspec.Struct, frozen=True, array_like=True, tag="shrink_topic"):
    """A request to decommission ``partitions``, or the last ``count`` of a topic's ``expected`` partitions.

    With ``is_ended`` the request recommissions ``partitions``, by default all decommissioned partitions.
    """

    name: str
    topic_id: TopicId
    expected: int  # partitions that accept records
    expected_shape: int  # ``TopicInfo.shape_version`` at the time of the request; refused if it has changed
    partitions: tuple[int, ...] = ()
    count: int = 0
    is_ended: bool = False
    expected_version: int | None = None


def plan_shrink(request: ShrinkTopic, image: MetadataImage) -> DecommissionPartitions:
    """The command that carries out the request.

    Raises ``InvalidRequest``, ``PartitionNotFound``, ``Conflict``.
    """
    check_feature(image, DECOMMISSIONED_PARTITIONS)
    topic = find_topic(image, request.name, request.topic_id)
    if topic.is_internal:
        raise InvalidRequest(
            f"topic {topic.name!r} is internal: its number of partitions cannot be changed",
            field="name",
        )
    for number in request.partitions:
        if not 0 <= number < len(topic.partitions) and topic.removed_partition(number) is None:
            raise PartitionNotFound(
                f"topic {topic.name!r} has the partitions 0 to {len(topic.partitions) - 1}, not {number}",
                topic=topic.name,
                partition=number,
            )
    writable = _more(request, topic) if request.is_ended else _fewer(request, topic)
    return DecommissionPartitions(
        topic.name,
        topic.topic_id,
        request.expected,
        writable,
        request.expected_shape,
        request.expected_version,
    )


def _fewer(request: ShrinkTopic, topic: TopicInfo) -> int:
    now = topic.writable_partitions
    if request.count:
        left = request.expected - request.count
        if left < 1:
            raise InvalidRequest(
                f"count is {request.count}, but {_of(topic, request.expected)}; send 1 to "
                f"{request.expected - 1}, or delete the topic"
                if request.expected > 1
                else f"count is {request.count}, but {_of(topic, request.expected)}; delete the topic, or "
                "keep this partition",
                field="count",
            )
        return left
    wanted = {number for number in request.partitions if number < now}
    if not wanted:
        return now  # all of them are already decommissioned
    if wanted == set(range(now)):
        raise InvalidRequest(
            f"partitions has all of {topic.name!r} that accept records; keep at least one, or delete the "
            "topic",
            field="partitions",
        )
    first = min(wanted)
    if wanted != set(range(first, now)):
        raise InvalidRequest(
            f"partitions are {sorted(request.partitions)}, but {_of(topic, now)}: {BY_NUMBER}; send "
            f"{list(range(first, now))}, or the last of these",
            field="partitions",
        )
    return first


def _more(request: ShrinkTopic, topic: TopicInfo) -> int:
    now, count = topic.writable_partitions, len(topic.partitions)
    for number in request.partitions:
        if number >= count:
            raise Conflict(
                f"{topic.name}/{number} has been removed with all its records; add a new partition with "
                "partitions:add",
                topic=topic.name,
                partition=number,
            )
    wanted = {number for number in request.partitions or range(now, count) if number >= now}
    if not wanted:
        return now  # none of them is decommissioned
    if wanted != set(range(now, max(wanted) + 1)):
        raise InvalidRequest(
            f"partitions are {sorted(request.partitions)}, but {_of(topic, now)}: {BY_NUMBER}; send "
            f"{list(range(now, max(wanted) + 1))}, or the first of these",
            field="partitions",
        )
    return max(wanted) + 1


def _of(topic: TopicInfo, writable: int) -> str:
    last = f"0 to {writable - 1}" if writable > 1 else "number 0"
    return f"topic {topic.name!r} accepts records in {counted(writable, 'partition')}, {last}"
