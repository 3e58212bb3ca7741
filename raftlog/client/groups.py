"""Administers consumer groups. The calls return the response bodies of the HTTP contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from raftlog.wire import groups as wire

if TYPE_CHECKING:
    from raftlog.client.partition import Position
    from raftlog.client.session import Session


class AsyncGroups:
    """The consumer groups of the cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> list[wire.GroupSummary]:
        """Return all groups, sorted by name."""
        return await self._session.all_items(wire.LIST)

    async def describe(self, group: str) -> wire.GroupDescription:
        """One group: its members, their partitions, and its lag. Raises ``GroupNotFound``."""
        return await self._session.call(wire.DESCRIBE, group=group)

    async def offsets(self, group: str) -> Sequence[wire.GroupOffset]:
        """The committed offset and the lag of each partition. Raises ``GroupNotFound``."""
        return (await self._session.call(wire.OFFSETS, group=group)).items

    async def pending_offsets(self, group: str) -> Sequence[wire.PendingOffset]:
        """The offsets that open transactions will commit. Raises ``GroupNotFound``."""
        return (await self._session.call(wire.OFFSETS, query={"lag": "false"}, group=group)).pending

    async def rebalances(self, group: str) -> Sequence[wire.Rebalance]:
        """The newest rebalances, the newest first. Raises ``GroupNotFound``."""
        return (await self._session.call(wire.REBALANCES, group=group)).items

    async def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the next offsets to read, by topic and partition, for a group without members.

        Raises ``Conflict`` for a group in use, ``OffsetOutOfRange`` above the end of a partition.
        """
        body = wire.CommitOffsets(
            [wire.OffsetCommit(topic, number, offset) for (topic, number), offset in offsets.items()]
        )
        await self._session.call(wire.COMMIT, body, group=group)

    async def reset(
        self,
        group: str,
        to: Position | None = None,
        *,
        shift: int | None = None,
        topics: Sequence[str] | None = None,
        partitions: Mapping[str, Sequence[int]] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Sequence[wire.OffsetChange]:
        """Move committed offsets of a group to a position, or by ``shift``; return the changes.

        Without ``topics`` and ``partitions`` moves all committed offsets of the group. Raises ``Conflict``
        for a group with members, unless ``force``.
        """
        from raftlog.client.partition import written_position  # readers need more than other calls

        body = wire.ResetOffsets(
            to=None if to is None else written_position(to),
            shift=shift,
            topics=None if topics is None else [*topics],
            partitions=None if partitions is None else _listed(partitions),
            force=force,
        )
        query = {"dry_run": "true"} if dry_run else None
        reset = await self._session.call(wire.RESET, body, query=query, may_repeat=shift is None, group=group)
        return reset.items

    async def delete_offsets(self, group: str, partitions: Mapping[str, Sequence[int]]) -> None:
        """Delete committed offsets, in topics that no member consumes. Raises ``Conflict``."""
        body = wire.DeleteGroupOffsets(_listed(partitions))
        await self._session.call(wire.DELETE_OFFSETS, body, group=group)

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets. Raises ``Conflict``, ``GroupNotFound``."""
        await self._session.call(wire.DELETE, group=group)


def _listed(partitions: Mapping[str, Sequence[int]]) -> list[wire.TopicPartitions]:
    return [wire.TopicPartitions(topic, [*numbers]) for topic, numbers in partitions.items()]
