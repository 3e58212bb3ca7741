"""Collects the committed offsets of the groups that topics name in ``retention.consumed.by``.

Covers the partitions that this broker leads. Decides: when groups are asked, and which group holds back the
deletion of a partition's records. This is the named group with the lowest committed offset; a group that does
not exist or does not answer counts as offset 0. Leaves to others: the offsets (``groups``), and which
segments are deleted (``raftlog.hosting.retention``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from groups.offsets import GroupOffsets, gathered
from partitions.metadata import topic_config
from partitions.metadata.image import MetadataImage
from partitions.replica.replica import PartitionReplica
from partitions.values import Consumed
from raftlog.errors import RaftlogError
from raftlog.types import GroupId, Offset

ASK_MS: Final = 5_000
NOTHING: Final = Offset(0)
Target = tuple[str, int]  # topic and partition


def slowest_of(positions: Mapping[str, Offset | None]) -> Consumed:
    """Return the committed offset of the slowest group, with its name; a group without a known offset counts
    as 0.
    """
    slowest = min(positions, key=lambda group: positions[group] or NOTHING)
    return Consumed(positions[slowest] or NOTHING, slowest, tuple(positions))


class ConsumedPositions:
    """Keeps ``consumed``, which retention reads, up to date. Used on the event loop's thread only."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        replicas: Mapping[Target, PartitionReplica],
        offsets: GroupOffsets,
        consumed: dict[GroupId, Consumed],
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._offsets = offsets
        self._consumed = consumed

    async def run(self, interval_ms: int) -> None:
        """Update ``consumed`` until cancelled, twice in each interval of retention, so that retention reads
        new offsets.
        """
        while True:
            await asyncio.sleep(interval_ms / 2_000)
            await self.look()

    async def look(self) -> None:
        """Update ``consumed``: ask each named group once for its offsets in all partitions that this broker
        leads.
        """
        named = dict(self._named())
        targets: dict[str, list[Target]] = {}
        for target, groups in named.items():
            for group in groups:
                targets.setdefault(group, []).append(target)
        found = await gathered(self._positions(group, wanted) for group, wanted in targets.items())
        positions = dict(zip(targets, found, strict=True))
        self._consumed.clear()
        for target, groups in named.items():
            replica = self._replicas.get(target)
            if replica is not None:
                consumed = {group: positions[group].get(target) for group in groups}
                self._consumed[replica.group.group_id] = slowest_of(consumed)

    def _named(self) -> Iterable[tuple[Target, tuple[str, ...]]]:
        topics = self._image().topics
        for target, replica in self._replicas.items():
            topic = topics.get(target[0])
            if topic is not None and replica.group.is_ready:
                groups = topic_config.consumers({**topic_config.DEFAULTS, **topic.config})
                if groups:
                    yield target, groups

    async def _positions(self, group: str, targets: list[Target]) -> dict[Target, Offset]:
        """Return the committed offsets of a group; empty if the group does not exist or does not answer.

        Offsets of open transactions do not count until the transaction commits.
        """
        try:
            view = await self._offsets.view(group, timeout_ms=ASK_MS)
        except RaftlogError:
            return {}
        wanted = frozenset(targets)
        return {
            (topic, partition): Offset(committed.offset)
            for topic, partition, committed in view.offsets
            if (topic, partition) in wanted
        }
