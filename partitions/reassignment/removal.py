"""Seals decommissioned partitions at their leaders, and removes partitions once they have no records.

Decides: when a leader checks its partition, and when it reports that the partition has no record left. Leaves
to others: sealing (``replica.sealing``), deleting records (``raftlog.hosting.retention``), whether the
partition may be removed (``metadata.partition_commands``), deleting its replicas
(``hosting.replica_manager``).

No state is kept between checks: a new leader starts from the metadata and the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Protocol

from partitions.metadata.commands import RemovePartition
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.replica.replica import PartitionReplica
from raftlog.errors import RaftlogError
from raftlog.node.group_host import GroupHost

_log = logging.getLogger("raftlog.partitions")

LOOK_S: Final = 1.0
SEAL_TIMEOUT_MS: Final = 5_000
REPORT_TIMEOUT_MS: Final = 5_000
ASK_TIMEOUT_MS: Final = 5_000

Key = tuple[str, int]


class Metadata(Protocol):
    """The methods of ``metadata.service.Controller`` that this module uses."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    async def remove_partition(self, request: RemovePartition, timeout_ms: int) -> TopicInfo:
        """Report that a decommissioned partition has no records, so that the controller removes the
        partition.
        """


async def _never(topic: str, partition: int, timeout_ms: int) -> bool:
    return False


class PartitionRemover:
    """Removes decommissioned partitions that this broker leads. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        metadata: Metadata,
        replicas: Mapping[Key, PartitionReplica],
        is_awaited: Callable[[str, int, int], Awaitable[bool]] = _never,
    ) -> None:
        """``is_awaited(topic, partition, timeout_ms)`` says whether brokers still deliver records to the
        partition.

        For example delayed messages may be under way: only the partition's log shows whether they have
        arrived. The function raises ``NoLeader``.
        """
        self._host = host
        self._is_awaited = is_awaited
        self._metadata = metadata
        self._replicas = replicas

    async def run(self) -> None:
        """Seal and remove decommissioned partitions led here, until cancelled."""
        seen: Mapping[str, TopicInfo] = {}
        changed: list[tuple[TopicInfo, PartitionInfo]] = []
        while True:
            await asyncio.sleep(LOOK_S)
            topics = self._metadata.image.topics
            if topics is not seen:
                seen, changed = topics, list(_changed(topics))
            for topic, partition in changed:
                await self._look(topic, partition)

    async def _look(self, topic: TopicInfo, partition: PartitionInfo) -> None:
        replica = self._replicas.get((topic.name, partition.partition))
        if replica is None or replica.led(partition.group_id) is None:
            return
        try:
            if replica.must_settle_seal:
                await replica.settle_seal(SEAL_TIMEOUT_MS)
            is_last = topic.partitions[-1] is partition
            ends = await replica.spent_at() if partition.is_decommissioned and is_last else None
            if ends is not None and await self._is_awaited(topic.name, partition.partition, ASK_TIMEOUT_MS):
                _log.info("%s/%s: waits for delayed messages in delivery", topic.name, partition.partition)
            elif ends is not None:
                await self._metadata.remove_partition(
                    RemovePartition(
                        topic.name,
                        topic.topic_id,
                        partition.partition,
                        partition.group_id,
                        partition.decommission_version,
                        *ends,
                    ),
                    REPORT_TIMEOUT_MS,
                )
                _log.warning("%s/%s has no record left and is removed", topic.name, partition.partition)
        except RaftlogError as error:
            _log.info("%s/%s: decommissioning waits: %s", topic.name, partition.partition, error)


def _changed(topics: Mapping[str, TopicInfo]) -> Iterator[tuple[TopicInfo, PartitionInfo]]:
    """The partitions that are, or were once, decommissioned, each with its topic."""
    for topic in topics.values():
        for partition in topic.partitions:
            if partition.decommission_version:
                yield topic, partition
