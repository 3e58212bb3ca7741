"""Checks that topics which had one name at different times differ in their ids, groups, and folders on every
disk.

Decides: which metadata images of one topic id are consistent, in which folder a group may be opened, and
which entries an unsafe recovery must keep. Leaves to others: the bytes of a group (``records``), the final
places of replicas (``placement_checks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from raftlog.types import METADATA_GROUP, GroupId, NodeId
from verification.simulator.checker import Checker, Report
from verification.simulator.log_view import Entry
from verification.simulator.machine import Machine

_INVARIANT: Final = "I30 one log for one incarnation"

Place = tuple[str, int, int]
"""Topic id, partition, and the number of its unsafe recoveries."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The entries that an unsafe recovery must keep: all entries that the survivor knew to be committed."""

    group_id: GroupId
    before: GroupId
    entries: tuple[Entry, ...]


class Incarnations:
    """Checks the topics, groups and folders of a run, over all brokers and all their processes."""

    def __init__(self, checker: Checker, violated: Report) -> None:
        self._checker = checker
        self._violated = violated
        self._groups: dict[Place, GroupId] = {}
        self._places: dict[GroupId, Place] = {}
        self._creations: dict[str, str] = {}
        self._shown: dict[NodeId, Mapping[str, TopicInfo]] = {}
        self._kept: list[_Kept] = []

    def shown(self, machine: Machine, image: MetadataImage) -> None:
        """Check a metadata image that a broker has applied."""
        before, self._shown[machine.node] = self._shown.get(machine.node, {}), image.topics
        for topic in image.topics.values():
            if before.get(topic.name) is not topic:
                self._look(machine, topic)

    def opened(self, machine: Machine, group_id: GroupId, directory: str) -> None:
        """Check that a broker has opened the log of a group in the right folder."""
        place = self._places.get(group_id)
        if group_id == METADATA_GROUP or place is None:
            return
        topic_id, partition, _ = place
        if not directory.endswith(f"-{topic_id}/Partition-{partition}"):
            self._violated(_INVARIANT, f"{machine.name} has group {group_id} of {place} open in {directory}")

    def check_recoveries(self) -> None:
        """Check at the end of a run that each recovered group has all entries that its survivor knew to be
        committed.
        """
        for kept in self._kept:
            record = self._checker.groups.get(kept.group_id)
            if record is None or not record.entries:
                continue  # the topic was deleted before the survivor opened it
            lost = [entry for entry in kept.entries if (entry.base, entry.term) not in record.entries]
            if lost:
                detail = f"group {kept.group_id}, made of {kept.before}, lacks {lost[0]}"
                self._violated("H a recovery loses what its survivor knew to be committed", detail)

    def _look(self, machine: Machine, topic: TopicInfo) -> None:
        made = self._creations.setdefault(topic.creation_id, topic.topic_id)
        if made != topic.topic_id:
            detail = f"{machine.name}: creation {topic.creation_id} of {topic.name} made {made}"
            self._violated(_INVARIANT, f"{detail} and {topic.topic_id}")
        for partition in topic.partitions:
            place = (topic.topic_id, partition.partition, partition.log_number)
            group_id = self._groups.setdefault(place, partition.group_id)
            known = self._places.setdefault(partition.group_id, place)
            if (group_id, known) != (partition.group_id, place):
                detail = f"{machine.name} {topic.name}: {place} is group {partition.group_id}"
                self._violated(_INVARIANT, f"{detail}; it was {group_id}, and the group was of {known}")
            elif partition.unsafe_recoveries and all(k.group_id != group_id for k in self._kept):
                self._recovered(topic, partition)

    def _recovered(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        count = partition.log_number
        before = self._groups.get((topic.topic_id, partition.partition, count - 1))
        record = None if before is None else self._checker.groups.get(before)
        if before is not None and record is not None:
            known = partition.unsafe_recoveries[-1].commit_index
            entries = tuple(entry for entry in record.committed if entry.last <= known)
            self._kept.append(_Kept(partition.group_id, before, entries))
