"""Committed offsets of the groups that topics name (``retention.consumed.by``), of the partitions led here.

Decides: when groups are asked, and what holds a partition back: the named group that has consumed least, or
that does not exist yet, or that could not be asked. Leaves to others: the offsets (``groups``), and which
segments go (``raftlog.hosting.retention``).
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
    """The group that has consumed least; None stands for a group of which no offset is known."""
    slowest = min(positions, key=lambda group: positions[group] or NOTHING)
    return Consumed(positions[slowest] or NOTHING, slowest, tuple(positions))


class ConsumedPositions:
    """Keeps ``consumed`` up to date, which retention reads. All on the event loop's thread."""

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
        """Look now and then, until cancelled; more often than retention, which would be a look late."""
        while True:
            await asyncio.sleep(interval_ms / 2_000)
            await self.look()

    async def look(self) -> None:
        """Ask every named group once for all its partitions that are led here."""
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
        """The committed offsets of a group; none if it does not exist or cannot be asked.

        Offsets of open transactions do not count yet, and hold nothing else up.
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
