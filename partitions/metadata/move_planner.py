"""Turns a request about a partition's replicas into the command that sets the target.

Decides: which targets are refused, and why. Leaves to others: carrying out the move
(``partitions.reassignment.reassigner``). Pure, like ``planner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from partitions.metadata.commands import RecoveredUnsafely, SetReplicas
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from raftlog.errors import Conflict, InvalidRequest, PartitionNotFound, PreconditionFailed, TopicNotFound
from raftlog.types import NodeId, TopicId
from raftlog.units import counted
from raftlog.wire.limits import REPLICAS_MAX


class MoveReplicas(msgspec.Struct, frozen=True, array_like=True, tag="move_replicas"):
    """A request for exactly these replicas, or for one replica more or less than the current target has."""

    name: str
    partition: int
    replicas: tuple[NodeId, ...] | None = None
    add: NodeId | None = None
    remove: NodeId | None = None
    topic_id: TopicId | None = None  # None: any topic of that name
    expected: tuple[NodeId, ...] | None = None  # the target that the request replaces; None: any target


def plan_move(request: MoveReplicas, image: MetadataImage) -> SetReplicas:
    """The command that carries out the request.

    Raises ``InvalidRequest``, ``Conflict``, ``PreconditionFailed``, ``TopicNotFound``, ``PartitionNotFound``.
    """
    topic, partition = find(image, request.name, request.partition, request.topic_id)
    where = f"{request.name}/{request.partition}"
    if request.expected not in (None, partition.target_replicas):
        raise PreconditionFailed(
            f"the target of {where} is now {list(partition.target_replicas)}; read it and try again",
            topic=request.name,
            partition=request.partition,
        )
    target = _target(request, partition)
    if not target:
        raise InvalidRequest(
            f"{where} would have no replica left; name at least one, or delete the topic", field="replicas"
        )
    if len(set(target)) != len(target):
        raise InvalidRequest(f"replicas {list(target)} name a broker twice; name each once", field="replicas")
    if len(target) > REPLICAS_MAX:
        raise InvalidRequest(
            f"{len(target)} replicas are too many; choose 1 to {REPLICAS_MAX}", field="replicas"
        )
    _check_in_sync(topic, partition, where, len(target))
    for node in target:
        _check_broker(image, node, is_new=node not in partition.replicas)
    _check_majority(image, where, "vote now", partition.replicas)
    _check_majority(image, where, "would vote", target)
    return SetReplicas(topic.name, topic.topic_id, request.partition, target, partition.target_replicas)


def check_recovery(command: RecoveredUnsafely, image: MetadataImage) -> RecoveredUnsafely:
    """Return ``command``, or raise ``Conflict`` if a majority of the partition's replicas is alive."""
    _, partition = find(image, command.name, command.partition, command.topic_id)
    all_replicas = [node for node in partition.replicas if node not in partition.added]
    alive = alive_of(image, all_replicas)
    if 2 * len(alive) > len(partition.replicas):
        raise Conflict(
            f"brokers {alive} are alive and hold a majority of the replicas of "
            f"{command.name}/{command.partition}: the partition needs no recovery; if a disk is lost, stop "
            "its broker first",
            alive=[str(node) for node in alive],
        )
    return command


def alive_of(image: MetadataImage, nodes: Iterable[NodeId]) -> list[NodeId]:
    """The brokers among ``nodes`` that count as alive."""
    found = ((node, image.brokers.get(node)) for node in nodes)
    return [node for node, broker in found if broker is not None and broker.alive]


def has_majority(image: MetadataImage, voters: Sequence[NodeId]) -> bool:
    """Whether more than half of ``voters`` count as alive."""
    return 2 * len(alive_of(image, voters)) > len(voters)


def find_topic(image: MetadataImage, name: str, topic_id: TopicId | None = None) -> TopicInfo:
    """The topic with this name.

    Raises ``TopicNotFound`` if no topic has the name, or if the topic has another id than ``topic_id``.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise TopicNotFound(f"there is no topic {name!r}", topic=name)
    if topic_id not in (None, topic.topic_id):
        raise TopicNotFound(f"topic {name!r} was deleted; another topic has the name now", topic=name)
    return topic


def find(
    image: MetadataImage, name: str, number: int, topic_id: TopicId | None = None
) -> tuple[TopicInfo, PartitionInfo]:
    """A topic and its partition with this number. Raises ``TopicNotFound`` or ``PartitionNotFound``."""
    topic = find_topic(image, name, topic_id)
    if not 0 <= number < len(topic.partitions):
        raise PartitionNotFound(
            f"topic {name!r} has the partitions 0 to {len(topic.partitions) - 1}, not {number}",
            topic=name,
            partition=number,
        )
    return topic, topic.partitions[number]


def _target(request: MoveReplicas, partition: PartitionInfo) -> tuple[NodeId, ...]:
    wanted = partition.target_replicas if request.replicas is None else request.replicas
    if request.add is not None:
        if request.add in wanted:
            raise InvalidRequest(
                f"broker {request.add} already holds a replica, or is the target of one; choose another",
                field="broker_id",
            )
        wanted = (*wanted, request.add)
    if request.remove is not None:
        if request.remove not in wanted:
            raise InvalidRequest(
                f"broker {request.remove} holds no replica; replicas are on {list(wanted)}", field="broker_id"
            )
        wanted = tuple(node for node in wanted if node != request.remove)
    return wanted


def _check_in_sync(topic: TopicInfo, partition: PartitionInfo, where: str, count: int) -> None:
    """Raise ``InvalidRequest`` if ``count`` replicas are fewer than ``min.insync.replicas`` requires.

    A partition that already has fewer replicas may keep their number.
    """
    least = topic.config.get("min.insync.replicas")
    if isinstance(least, int) and count < min(least, len(partition.replicas)):
        raise InvalidRequest(
            f"{where} would have {counted(count, 'replica')}, but min.insync.replicas of {topic.name} is "
            f"{least}: the leader would refuse all records; name at least {least} replicas, or first set "
            f"min.insync.replicas to {count}",
            field="replicas",
        )


def _check_broker(image: MetadataImage, node: NodeId, *, is_new: bool) -> None:
    broker = image.brokers.get(node)
    if broker is None:
        known = ", ".join(str(one) for one in sorted(image.brokers))
        raise InvalidRequest(f"no broker {node} is registered; the brokers are {known}", field="replicas")
    if is_new and not broker.alive:
        raise Conflict(f"broker {node} is not alive; start it, or choose another", broker_id=node)
    if is_new and broker.draining:
        raise Conflict(
            f"broker {node} is draining and takes no replicas; choose another, or end the drain",
            broker_id=node,
        )


def _check_majority(image: MetadataImage, where: str, who: str, voters: Sequence[NodeId]) -> None:
    if not has_majority(image, voters):
        alive = alive_of(image, voters)
        raise Conflict(
            f"of the brokers {list(voters)} that {who} in {where}, only {alive} are alive, "
            "which is no majority; start the other brokers first",
            alive=[str(node) for node in alive],
        )
