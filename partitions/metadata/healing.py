"""Which replicas of dead brokers are restored on others: a pure decision of the active controller.

Decides: which brokers are dead, which partitions come first, and which brokers take the new replicas.
Leaves to others: measuring silence (``silence``) and moving (``partitions.reassignment``). The members of the
metadata group never change.

- A broker is dead when it is fenced and has been silent for ``broker_dead_ms``. The target of each of its
  partitions names another broker in its place, so the number of replicas stays. A move towards a broker that
  dies meanwhile gets another target for the same reason, and so does one towards a live broker that does not
  open its replica (``refusals``). Other moves under way are left alone.
- Partitions with the fewest live replicas come first. At most ``moves_max`` moves are under way at a time,
  those of operators included. Moves that cannot end do not count.
- A new replica goes to a broker that is alive, heard, not draining, below its limit, without a replica of
  the partition, and that has not refused one lately: to a rack with the fewest of them, there to one that
  still votes in the partition, if any, else to the one with the fewest replicas of all.
- Without a majority of its voters a partition cannot move; without a broker to spare it waits for one.

Nothing is remembered: when a broker comes back, what has not begun is not begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas, alive_of, has_majority
from partitions.metadata.refusals import Refused
from raftlog.types import NodeId


def dead_brokers(
    image: MetadataImage, silent_ms: Mapping[NodeId, float], broker_dead_ms: float
) -> frozenset[NodeId]:
    """The brokers that are not expected to come back."""
    return frozenset(
        broker.broker_id
        for broker in image.brokers.values()
        if not broker.alive and silent_ms.get(broker.broker_id, 0.0) >= broker_dead_ms
    )


def plan_healing(
    image: MetadataImage,
    silent_ms: Mapping[NodeId, float],
    heard: Collection[NodeId],
    *,
    broker_dead_ms: float,
    moves_max: int,
    replicas_per_broker_max: int,
    refused: Refused = (),
) -> list[MoveReplicas]:
    """The moves to begin now, most urgent first."""
    dead = dead_brokers(image, silent_ms, broker_dead_ms)
    stuck = _Stuck(refused)
    endangered = _endangered(image, dead, stuck) if (dead or refused) and moves_max else []
    if not endangered:
        return []
    load = Counter(node for _, partition in _partitions(image) for node in partition.all_replicas)
    able = [broker for broker in image.brokers.values() if broker.broker_id not in stuck.brokers]
    spare = [
        broker.broker_id
        for broker in able
        if broker.alive and not broker.draining and broker.broker_id in heard
    ]
    room = moves_max - sum(_is_moving(image, *where, stuck) for where in _partitions(image))
    moves: list[MoveReplicas] = []
    for topic, partition in endangered:
        if room < 1 and not partition.target:
            continue
        candidates = [node for node in spare if load[node] < replicas_per_broker_max]
        lost = dead | stuck.of(topic, partition)
        target = _restored(image, partition, lost, candidates, load)
        if set(target) == set(partition.target_replicas) or not has_majority(image, target):
            continue
        load.update(set(target) - set(partition.all_replicas))
        room -= not partition.target
        moves.append(
            MoveReplicas(
                topic.name,
                partition.partition,
                target,
                topic_id=topic.topic_id,
                expected=partition.target_replicas,
            )
        )
    return moves


@dataclass(frozen=True, slots=True)
class HealingCounts:
    """Partitions that move, for whatever reason, and those that shall have a replica on a dead broker."""

    moving: int = 0
    to_restore: int = 0


def healing_counts(image: MetadataImage, dead: Collection[NodeId]) -> HealingCounts:
    """What is under way and what is left to do, also where it cannot be done now."""
    partitions = [partition for _, partition in _partitions(image)]
    return HealingCounts(
        sum(bool(partition.target) for partition in partitions),
        sum(not set(partition.target_replicas).isdisjoint(dead) for partition in partitions),
    )


class _Stuck:
    """What the reports of leaders say about brokers and about the moves that are under way now."""

    def __init__(self, refused: Refused) -> None:
        self.brokers = frozenset(report.broker_id for report in refused)
        self._refused = refused

    def of(self, topic: TopicInfo, partition: PartitionInfo) -> frozenset[NodeId]:
        """The brokers that do not open what this very move brings to them."""
        return frozenset(
            report.broker_id
            for report in self._refused
            if (report.topic_id, report.partition) == (topic.topic_id, partition.partition)
            and report.target_version == partition.version
            and report.broker_id in partition.target
            and report.broker_id not in partition.replicas
        )


def _endangered(
    image: MetadataImage, dead: frozenset[NodeId], stuck: _Stuck
) -> list[tuple[TopicInfo, PartitionInfo]]:
    """The partitions with a dead or refusing broker in their targets; fewest live replicas first."""
    found = [
        (topic, partition)
        for topic, partition in _partitions(image)
        if not (dead | stuck.of(topic, partition)).isdisjoint(partition.target_replicas)
        and has_majority(image, partition.replicas)
    ]
    return sorted(
        found, key=lambda one: (len(alive_of(image, one[1].replicas)), one[0].name, one[1].partition)
    )


def _restored(
    image: MetadataImage,
    partition: PartitionInfo,
    leaving: frozenset[NodeId],
    candidates: list[NodeId],
    load: Mapping[NodeId, int],
) -> tuple[NodeId, ...]:
    """The target with another broker for each of these that are in it, as far as there are any.

    The replicas that stay come first: one of them leads.
    """
    row = [node for node in partition.target_replicas if node not in leaving]
    lost = [node for node in partition.target_replicas if node in leaving]
    while lost:
        racks = Counter(_rack(image, node) for node in row)
        free = [node for node in candidates if node not in row]
        if not free:
            break
        order = {
            node: (racks[_rack(image, node)], node not in partition.replicas, load[node], node)
            for node in free
        }
        row.append(min(free, key=order.__getitem__))
        lost.pop()
    return (*row, *lost)


def _is_moving(image: MetadataImage, topic: TopicInfo, partition: PartitionInfo, stuck: _Stuck) -> bool:
    """Whether a move is under way that can end."""
    is_stuck = bool(stuck.of(topic, partition))
    return bool(partition.target) and has_majority(image, partition.replicas) and not is_stuck


def _rack(image: MetadataImage, node: NodeId) -> str:
    return image.brokers[node].rack or ""  # brokers without a label share one rack, as in ``placement``


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicInfo, PartitionInfo]]:
    for topic in image.topics.values():
        for partition in topic.partitions:
            yield topic, partition
