"""Plans the moves of replicas away from dead and decommissioned brokers; pure, for the active controller.

The module also adds replicas to internal topics that were created while the cluster had too few brokers.

Decides: which brokers are dead, which partitions come first, and which brokers take the new replicas. Leaves
to others: measuring silence (``silence``), moving (``partitions.reassignment``), and the members of the
metadata group (``voters``).

- A broker leaves when it is dead or decommissioned. It is dead when it is fenced and has been silent for
  ``restore_after_ms``. In the target of each of its partitions another broker takes its place, so the number
  of replicas stays. A move under way gets another target if a broker in its target leaves, has no room, or
  does not open its new replica (``refusals``). Other moves under way stay.
- Partitions with the fewest live replicas come first. At most ``moves_max`` moves are under way at a time,
  including moves of operators, excluding moves that cannot end now.
- A new replica goes to a broker that is alive, heard, not draining, with room, below its limit, without a
  replica of the partition, and without a recent refusal: to the rack with the fewest replicas of the
  partition, there to a broker that still votes in the partition, else to the broker with the fewest replicas.
- A partition of an internal topic gets ``DEFAULT_REPLICAS`` once that many brokers are in use and have room.
- A partition without a live majority of its voters cannot move; without a free broker it waits.

Each plan depends on the current state only: when a broker returns, its remaining replicas stay where they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas, alive_of, has_majority
from partitions.metadata.placement import DEFAULT_REPLICAS
from partitions.metadata.refusals import Refused
from raftlog.types import NodeId


def dead_brokers(
    image: MetadataImage, silent_ms: Mapping[NodeId, float], restore_after_ms: float
) -> frozenset[NodeId]:
    """The brokers that are fenced and have been silent for ``restore_after_ms``."""
    return frozenset(
        broker.broker_id
        for broker in image.brokers.values()
        if not broker.alive and silent_ms.get(broker.broker_id, 0.0) >= restore_after_ms
    )


def leaving_brokers(image: MetadataImage, dead: Collection[NodeId]) -> frozenset[NodeId]:
    """The dead and the decommissioned brokers."""
    return frozenset(dead).union(
        broker.broker_id for broker in image.brokers.values() if broker.decommissioned
    )


def plan_healing(
    image: MetadataImage,
    leaving: frozenset[NodeId],
    heard: frozenset[NodeId],
    without_room: frozenset[NodeId],
    *,
    moves_max: int,
    replicas_per_broker_max: int,
    refused: Refused = (),
) -> list[MoveReplicas]:
    """The moves to begin now, most urgent first. Brokers ``without_room`` cannot store new replicas now.

    With ``moves_max`` 0 only replicas on decommissioned brokers are replaced, one partition at a time.
    """
    unable = _Unable(without_room, refused)
    replaced = unable if moves_max else _Unable(frozenset(), ())
    leaving = leaving if moves_max else leaving_brokers(image, ())
    grows = _can_grow(image) and bool(moves_max)
    endangered = _endangered(image, leaving, replaced, grows=grows)
    if not endangered:
        return []
    load = Counter(node for _, partition in _partitions(image) for node in partition.all_replicas)
    able = [broker for broker in image.brokers.values() if broker.broker_id not in unable.brokers]
    spare = [
        broker.broker_id
        for broker in able
        if broker.alive and not broker.draining and broker.broker_id in heard
    ]
    room = (moves_max or 1) - sum(_is_moving(image, *where, unable) for where in _partitions(image))
    moves: list[MoveReplicas] = []
    for topic, partition in endangered:
        if room < 1 and not partition.target:
            continue
        candidates = [node for node in spare if load[node] < replicas_per_broker_max]
        lost = leaving | replaced.of(topic, partition)
        missing = _missing(topic, partition) if grows else 0
        target = _restored(image, partition, lost, candidates, load, missing)
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
    """The number of partitions that move, and the number of partitions to restore.

    A partition is to be restored if it has a replica on a leaving broker, or too few replicas of an internal
    topic.
    """

    moving: int = 0
    to_restore: int = 0


def healing_counts(image: MetadataImage, leaving: Collection[NodeId]) -> HealingCounts:
    """Count the partitions that move, and the partitions to restore, even if these cannot move now."""
    partitions, grows = list(_partitions(image)), _can_grow(image)
    return HealingCounts(
        sum(bool(partition.target) for _, partition in partitions),
        sum(
            not set(partition.target_replicas).isdisjoint(leaving)
            or (grows and _missing(topic, partition) > 0)
            for topic, partition in partitions
        ),
    )


def _can_grow(image: MetadataImage) -> bool:
    return sum(map(image.is_in_use, image.brokers)) >= DEFAULT_REPLICAS


def _missing(topic: TopicInfo, partition: PartitionInfo) -> int:
    return DEFAULT_REPLICAS - len(partition.target_replicas) if topic.is_internal else 0


class _Unable:
    """The brokers that cannot take new replicas now: without room, or reported by a leader as refusing."""

    def __init__(self, without_room: frozenset[NodeId], refused: Refused) -> None:
        self.brokers = without_room.union(report.broker_id for report in refused)
        self._without_room = without_room
        self._refused = refused

    def of(self, topic: TopicInfo, partition: PartitionInfo) -> frozenset[NodeId]:
        """The new brokers in the target of ``partition`` that cannot take its replica."""
        if not partition.target:
            return frozenset()
        refusing = {
            report.broker_id
            for report in self._refused
            if (report.topic_id, report.partition) == (topic.topic_id, partition.partition)
            and report.target_version == partition.version
        }
        new = frozenset(partition.target).difference(partition.replicas)
        return new & (self._without_room | refusing)


def _endangered(
    image: MetadataImage, leaving: frozenset[NodeId], unable: _Unable, *, grows: bool
) -> list[tuple[TopicInfo, PartitionInfo]]:
    """The movable partitions whose target has a leaving or unable broker or too few replicas.

    Partitions with the fewest live replicas come first.
    """
    found = [
        (topic, partition)
        for topic, partition in _partitions(image)
        if (
            not (leaving | unable.of(topic, partition)).isdisjoint(partition.target_replicas)
            or (grows and _missing(topic, partition) > 0)
        )
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
    missing: int,
) -> tuple[NodeId, ...]:
    """The partition's target, with a candidate in place of each leaving broker, as far as candidates suffice.

    The result has ``missing`` more brokers only if the candidates suffice for all of them: two replicas are
    less available than one. Replicas that stay come first, so that one of them leads.
    """
    row = [node for node in partition.target_replicas if node not in leaving]
    lost = [node for node in partition.target_replicas if node in leaving]
    is_enough = len(set(candidates).difference(row)) >= len(lost) + missing
    goal = len(partition.target_replicas) + (missing if is_enough else 0)
    while len(row) < goal:
        racks = Counter(_rack(image, node) for node in row)
        free = [node for node in candidates if node not in row]
        if not free:
            break
        order = {
            node: (racks[_rack(image, node)], node not in partition.replicas, load[node], node)
            for node in free
        }
        row.append(min(free, key=order.__getitem__))
    return (*row, *lost[: goal - len(row)])


def _is_moving(image: MetadataImage, topic: TopicInfo, partition: PartitionInfo, unable: _Unable) -> bool:
    """Whether the partition has a move under way that can end with the brokers that are alive now."""
    return (
        bool(partition.target) and has_majority(image, partition.replicas) and not unable.of(topic, partition)
    )


def _rack(image: MetadataImage, node: NodeId) -> str:
    return image.brokers[node].rack or ""  # brokers without a label share one rack, as in ``placement``


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicInfo, PartitionInfo]]:
    for topic in image.topics.values():
        for partition in topic.partitions:
            yield topic, partition
