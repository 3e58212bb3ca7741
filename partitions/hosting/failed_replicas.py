"""One broker's replicas as the sick bay sees them: which have failed, how they are closed and opened.

Decides: whom a damaged replica may ask, and what is said of it meanwhile. Leaves to others: when
(``scheduler``) and how it is mended (``repairer``), opening (``replica_manager``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.replica.replica import PartitionReplica
from raftlog.repair.scheduler import Sick
from raftlog.repair.target import Patient
from raftlog.types import GroupId, NodeId, TopicPartition

_log = logging.getLogger("raftlog.repair")

Key = tuple[str, int]


class Bed(Protocol):
    """What the manager holds of one replica."""

    topic: TopicInfo
    partition: PartitionInfo
    replica: PartitionReplica | None
    failure: str
    error: BaseException | None
    is_short_of_room: bool
    is_leaving: bool


class ReplicaWard:
    """See ``sick_bay.Ward``. ``close`` ends a replica that has failed, ``look_again`` opens what is due, and
    ``forget`` ends what peers are told of files as they were.
    """

    def __init__(
        self,
        node_id: NodeId,
        held: Mapping[Key, Bed],
        directory: Callable[[TopicInfo, int], str],
        close: Callable[[Key], Awaitable[None]],
        look_again: Callable[[], None],
        forget: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._held = held
        self._directory = directory
        self._close = close
        self._look_again = look_again
        self.forget = forget
        self._hopeless: dict[GroupId, str] = {}

    @property
    def to_rebuild(self) -> Mapping[Key, str]:
        """Replicas that no repair can help, as long as they are wanted here, and why."""
        return {
            key: self._hopeless[bed.partition.group_id]
            for key, bed in self._held.items()
            if bed.partition.group_id in self._hopeless and not bed.is_leaving
        }

    def directory_of(self, group_id: GroupId) -> str | None:
        """The files of a replica that is here and not served."""
        for bed in self._held.values():
            if bed.partition.group_id == group_id:
                return self._directory(bed.topic, bed.partition.partition)
        return None

    def hand_over(self, bed: Bed) -> None:
        """Its files were opened, or are about to be closed or removed: they are not as anybody saw them."""
        self.forget(self._directory(bed.topic, bed.partition.partition))

    def sick(self) -> Sequence[Sick]:
        """Replicas that have failed, for another reason than a full disk."""
        found: list[Sick] = []
        for bed in self._held.values():
            error = bed.error if bed.replica is None else bed.replica.group.stopped
            if error is not None and not bed.is_short_of_room and not bed.is_leaving:
                partition = bed.partition
                patient = Patient(
                    partition.group_id,
                    self._directory(bed.topic, partition.partition),
                    tuple(peer for peer in partition.holders if peer != self._node_id),
                )
                found.append(Sick(TopicPartition(bed.topic.name, partition.partition), error, patient))
        return found

    async def admit(self, sick: Sick) -> None:
        """Close it; from now on it is named among the failures until it serves again."""
        bed = self._bed(sick)
        if bed is not None:
            bed.error = sick.error
            bed.failure = f"{type(sick.error).__name__}: {sick.error}; it is being mended"
            await self._close(_key(sick))

    def discharge(self, sick: Sick) -> None:
        """Have it opened."""
        bed = self._bed(sick)
        if bed is not None:
            bed.error = None
            bed.is_short_of_room = True  # it is opened like one that could not be for want of room
            self._hopeless.pop(sick.patient.group_id, None)
            self._look_again()

    def note(self, sick: Sick, trouble: str) -> None:
        """Say why it is not served yet."""
        bed = self._bed(sick)
        if bed is not None and bed.failure != trouble:
            bed.failure = trouble
            _log.error("%s is not served: %s", sick.target, trouble)

    def needs_rebuild(self, sick: Sick, reason: str) -> None:
        """Somebody must look after it."""
        if self._hopeless.get(sick.patient.group_id) != reason:
            self._hopeless[sick.patient.group_id] = reason
            _log.error("%s cannot be mended: %s", sick.target, reason)

    def _bed(self, sick: Sick) -> Bed | None:
        """The same replica, if the topic was not deleted meanwhile."""
        bed = self._held.get(_key(sick))
        return bed if bed is not None and bed.partition.group_id == sick.patient.group_id else None


def _key(sick: Sick) -> Key:
    return sick.target.topic, sick.target.partition
