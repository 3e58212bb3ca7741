"""The topics and partitions in this broker's metadata, confirmed before one of them counts as missing.

A broker may receive a new topic later than the client to which another broker has acknowledged the topic. The
answer that a topic does not exist is definite for clients, and lets coordinators drop state. So this broker's
metadata alone never proves it: the broker first asks the active controller, and then has metadata as new as
the controller's.

Decides: when the controller is asked. Leaves to others: fetching newer metadata (``metadata.service``), and
what follows from a missing topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import Final

from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.metadata.source import CurrentMetadata
from raftlog.errors import PartitionNotFound, TopicNotFound
from raftlog.types import TopicPartition
from raftlog.units import counted
from raftlog.wire.limits import PARTITIONS_MAX

CONFIRM_MS: Final = 2_000  # for a question to the active controller: at least as long as an election
GONE_MAX: Final = 100_000
MISSING: Final = (TopicNotFound, PartitionNotFound)


class ConfirmedTopics:
    """The topics in the metadata of one broker. All on the event loop's thread."""

    def __init__(self, metadata: CurrentMetadata) -> None:
        self._metadata = metadata
        self._gone: set[str] = set()  # ids that the controller does not have; they never come again

    async def confirm(self, timeout_ms: int = CONFIRM_MS) -> None:
        """Return once the metadata here has all changes acknowledged before this call.

        Raises ``NoLeader``.
        """
        await self._metadata.current_image(timeout_ms)

    async def topic(
        self, name: str, topic_id: str | None = None, timeout_ms: int = CONFIRM_MS
    ) -> TopicInfo | None:
        """The topic with this name (and ``topic_id``, if given); None if confirmed metadata has no such
        topic.

        Raises ``NoLeader`` when the metadata cannot be confirmed.
        """
        found = self.topic_here(name, topic_id)
        if found is None and topic_id not in self._gone:
            await self.confirm(timeout_ms)
            found = self.topic_here(name, topic_id)
            if found is None and topic_id is not None:
                if len(self._gone) == GONE_MAX:
                    self._gone.clear()
                self._gone.add(topic_id)
        return found

    async def partition(self, target: TopicPartition) -> PartitionInfo:
        """The partition ``target``.

        Raises ``NoLeader``; if confirmed metadata has no such partition, the ``missing`` error.
        """
        found = self.partition_here(target)
        if found is None:
            await self.confirm()
            found = self.partition_here(target)
        if found is None:
            raise self.missing(target)
        return found

    async def hear_of(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Return once the metadata here has these partitions, or has been confirmed. Raises ``NoLeader``."""
        if not all(starmap(self.has, partitions)):
            await self.confirm()

    # As this broker knows them now, which proves that a topic exists, and never that it does not.

    def topic_here(self, name: str, topic_id: str | None = None) -> TopicInfo | None:
        """The topic with this name (and ``topic_id``, if given) in unconfirmed metadata, or None."""
        found = self._metadata.image.topics.get(name)
        return found if found is None or topic_id in (None, found.topic_id) else None

    def partition_here(self, target: TopicPartition) -> PartitionInfo | None:
        """The partition ``target`` in unconfirmed metadata, or None."""
        topic = self._metadata.image.topics.get(target.topic)
        if topic is None:
            return None
        partitions, number = topic.partitions, target.partition
        if number < len(partitions) and partitions[number].partition == number:
            return partitions[number]
        return next((partition for partition in partitions if partition.partition == number), None)

    def has(self, topic: str, partition: int) -> bool:
        """Whether the metadata here has a partition; True for numbers that are too large for any topic."""
        found = self._metadata.image.topics.get(topic)
        return found is not None and not len(found.partitions) <= partition < PARTITIONS_MAX

    def missing(self, target: TopicPartition) -> TopicNotFound | PartitionNotFound:
        """The error for a partition that the metadata does not have."""
        topic = self._metadata.image.topics.get(target.topic)
        if topic is None:
            return TopicNotFound(f"there is no topic {target.topic!r}", topic=target.topic)
        return PartitionNotFound(
            f"topic {target.topic!r} has {counted(len(topic.partitions), 'partition')}, "
            f"none is {target.partition}",
            topic=target.topic,
            partition=target.partition,
        )
