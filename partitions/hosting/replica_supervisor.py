"""One broker's replicas as the repair scheduler sees them: which have failed, how they are closed and opened.

Decides: whom a damaged replica may ask, and what is said of it meanwhile. Leaves to others: when
(``scheduler``) and how it is repaired (``repairer``), opening (``replica_manager``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.replica.replica import PartitionReplica
from raftlog.repair.scheduler import FailedReplica
from raftlog.repair.target import RepairTarget
from raftlog.types import GroupId, NodeId, TopicPartition

_log = logging.getLogger("raftlog.repair")

Key = tuple[str, int]


class HostedReplica(Protocol):
    """What the manager holds of one replica."""

    topic: TopicInfo
    partition: PartitionInfo
    replica: PartitionReplica | None
    failure: str
    error: BaseException | None
    is_short_of_room: bool
    is_leaving: bool


class ReplicaSupervisor:
    """A ``Supervisor`` for the repair scheduler. ``close`` ends a failed replica, ``look_again`` opens
    what is due, and ``forget`` ends what peers are told of files as they were.
    """

    def __init__(
        self,
        node_id: NodeId,
        held: Mapping[Key, HostedReplica],
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
        self._unrepairable: dict[GroupId, str] = {}

    @property
    def needing_operator(self) -> Mapping[Key, str]:
        """Replicas that no repair can help, as long as they are wanted here, and why."""
        return {
            key: self._unrepairable[hosted.partition.group_id]
            for key, hosted in self._held.items()
            if hosted.partition.group_id in self._unrepairable and not hosted.is_leaving
        }

    def directory_of(self, group_id: GroupId) -> str | None:
        """The files of a replica that is here and not served."""
        for hosted in self._held.values():
            if hosted.partition.group_id == group_id:
                return self._directory(hosted.topic, hosted.partition.partition)
        return None

    def hand_over(self, hosted: HostedReplica) -> None:
        """Its files were opened, or are about to be closed or removed: they are not as anybody saw them."""
        self.forget(self._directory(hosted.topic, hosted.partition.partition))

    def failed(self) -> Sequence[FailedReplica]:
        """Replicas that have failed, for another reason than a full disk."""
        found: list[FailedReplica] = []
        for hosted in self._held.values():
            error = hosted.error if hosted.replica is None else hosted.replica.group.stopped
            if error is not None and not hosted.is_short_of_room and not hosted.is_leaving:
                partition = hosted.partition
                repair_target = RepairTarget(
                    partition.group_id,
                    self._directory(hosted.topic, partition.partition),
                    tuple(peer for peer in partition.holders if peer != self._node_id),
                )
                found.append(
                    FailedReplica(
                        TopicPartition(hosted.topic.name, partition.partition), error, repair_target
                    )
                )
        return found

    async def take_offline(self, failed: FailedReplica) -> None:
        """Close it; from now on it is named among the failures until it serves again."""
        hosted = self._hosted(failed)
        if hosted is not None:
            hosted.error = failed.error
            hosted.failure = f"{type(failed.error).__name__}: {failed.error}; it is being repaired"
            await self._close(_key(failed))

    def bring_online(self, failed: FailedReplica) -> None:
        """Have it opened."""
        hosted = self._hosted(failed)
        if hosted is not None:
            hosted.error = None
            hosted.is_short_of_room = True  # it is opened like one that could not be for want of room
            self._unrepairable.pop(failed.repair_target.group_id, None)
            self._look_again()

    def note(self, failed: FailedReplica, trouble: str) -> None:
        """Say why it is not served yet."""
        hosted = self._hosted(failed)
        if hosted is not None and hosted.failure != trouble:
            hosted.failure = trouble
            _log.error("%s is not served: %s", failed.target, trouble)

    def needs_operator(self, failed: FailedReplica, reason: str) -> None:
        """Somebody must look after it."""
        if self._unrepairable.get(failed.repair_target.group_id) != reason:
            self._unrepairable[failed.repair_target.group_id] = reason
            _log.error("%s cannot be repaired: %s", failed.target, reason)

    def _hosted(self, failed: FailedReplica) -> HostedReplica | None:
        """The same replica, if the topic was not deleted meanwhile."""
        hosted = self._held.get(_key(failed))
        return (
            hosted
            if hosted is not None and hosted.partition.group_id == failed.repair_target.group_id
            else None
        )


def _key(failed: FailedReplica) -> Key:
    return failed.target.topic, failed.target.partition
