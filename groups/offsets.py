"""Compares committed offsets with their partitions: checks and lag.

Decides: which offsets may be committed, and the lag of a group. Leaves to others: who may commit
(``coordination``), the ends of partitions (``ports.Topics``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from groups import generations
from groups.backlog import backlog
from groups.commits import still_pending
from groups.ports import Topics
from groups.records import CommittedOffset
from groups.requests import Commit, GroupView, OffsetCommit, ReadGroup
from groups.service import GroupService
from raftlog.clock import Clock
from raftlog.errors import InvalidRequest, OffsetOutOfRange, PartitionNotFound, RaftlogError, TopicNotFound

METADATA_CHARACTERS_MAX: Final = 4_096
OFFSETS_MAX: Final = 10_000  # of one request
ASKED_AT_ONCE: Final = 64  # partitions that are read concurrently
_NO_ENDS: Final[Mapping[int, int]] = {}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetLag:
    """One committed offset and its lag.

    The lag is None if unknown, for example if a partition has no leader.
    """

    topic: str
    partition: int
    committed: CommittedOffset
    high_watermark: int | None
    lag: int | None  # records
    lag_s: float | None  # age of the first unconsumed record


class GroupOffsets:
    """Committed offsets of all groups, checked and compared with partitions by one broker."""

    def __init__(self, service: GroupService, topics: Topics, clock: Clock) -> None:
        self._service = service
        self._topics = topics
        self._clock = clock
        self._ends: dict[str, dict[int, int]] = {}  # newest known ends, by topic id and partition

    def topics_changed(self) -> None:
        """Forget the known ends of deleted topics."""
        for topic_id in self._ends.keys() - self._topics.known.topic_ids.values():
            del self._ends[topic_id]

    async def commit(self, request: Commit, *, timeout_ms: int) -> None:
        """Commit all offsets of the request, or none.

        Raises ``TopicNotFound``, ``PartitionNotFound``, ``OffsetOutOfRange`` for an offset above the end,
        ``InvalidRequest``, and the refusals of the coordinator.
        """
        await self.check(request.offsets)
        await self._service.ask(request, timeout_ms=timeout_ms, creates=True)

    async def check(self, offsets: Sequence[OffsetCommit]) -> None:
        """Raise ``InvalidRequest`` without offsets, ``OffsetOutOfRange`` for an offset above a partition's
        end.
        """
        if not offsets:
            raise InvalidRequest("offsets: send at least one", field="offsets")
        if unsure := [commit for commit in offsets if not self._is_within(commit)]:
            await gathered(map(self._check, unsure))

    def placed(
        self, topic: str, partition: int, offset: int, leader_epoch: int, metadata: str
    ) -> OffsetCommit:
        """Make an offset to commit, for the topic that has this name now. Raises as ``commit``."""
        topic_id, count = self._topics.topic_id(topic), self._topics.known.counts.get(topic, 0)
        if topic_id is None:
            raise TopicNotFound(f"there is no topic {topic[:250]!r}", topic=topic[:250])
        if not 0 <= partition < count:
            raise PartitionNotFound(
                f"topic {topic} has the partitions 0 to {count - 1}, not {partition}",
                topic=topic,
                partition=partition,
            )
        if len(metadata) > METADATA_CHARACTERS_MAX:
            raise InvalidRequest(
                f"metadata has {len(metadata)} characters; send at most {METADATA_CHARACTERS_MAX}",
                field="metadata",
            )
        return OffsetCommit(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
        )

    def is_removed(self, topic: str, partition: int) -> bool:
        """Whether a partition was decommissioned and removed, so that offsets in it are meaningless."""
        key = (self._topics.topic_id(topic) or "", partition)
        return partition >= self._topics.known.counts.get(topic, 0) and key in self._topics.known.beginnings

    async def view(self, group: str, *, timeout_ms: int) -> GroupView:
        """Read a group.

        The result has no offsets of deleted topics. Raises ``GroupNotFound``, ``NoLeader``.
        """
        view = await self._service.ask(ReadGroup(group=group), timeout_ms=timeout_ms)
        assert isinstance(view, GroupView)
        rows = [row for row in view.offsets if await self._counts_in(view, row[0], row[2].topic_id)]
        pending = [
            each for each in view.pending if await self._counts_in(view, each.topic, each.offset.topic_id)
        ]
        return msgspec.structs.replace(view, offsets=tuple(rows), pending=tuple(pending))

    async def _counts_in(self, view: GroupView, topic: str, topic_id: str) -> bool:
        """Whether an offset belongs to the existing topic.

        The coordinator may know a newer topic with this name.
        """
        if view.group.members and generations.is_another(view.group, topic, topic_id):
            return False
        return await self._topics.exists(topic, topic_id)

    def check_stable(self, view: GroupView, targets: Collection[tuple[str, int]]) -> None:
        """Raise ``OffsetsPending`` if an open transaction has a waiting offset of one of ``targets``.

        A reader of such a partition that begins at the committed offset could process input twice.
        """
        for each in view.pending:
            if (each.topic, each.partition) in targets:
                raise still_pending(each.topic, each.partition, each.transaction)

    async def lags(self, view: GroupView) -> list[OffsetLag]:
        """The lags of a group in all partitions in which it has a committed offset."""
        return await gathered(self._lag(*row) for row in view.offsets)

    def without_lag(self, view: GroupView) -> list[OffsetLag]:
        """The committed offsets without their lags."""
        return [
            OffsetLag(
                topic=topic, partition=number, committed=committed, high_watermark=None, lag=None, lag_s=None
            )
            for topic, number, committed in view.offsets
        ]

    async def positions(
        self, group: str, targets: Sequence[tuple[str, int]], *, timeout_ms: int
    ) -> dict[tuple[str, int], int]:
        """The committed offsets of ``targets``. Raises ``OffsetsPending``, as ``check_stable``."""
        view = await self.view(group, timeout_ms=timeout_ms)
        wanted = set(targets)
        self.check_stable(view, wanted)
        return {
            (topic, partition): committed.offset
            for topic, partition, committed in view.offsets
            if (topic, partition) in wanted
        }

    def _is_within(self, commit: OffsetCommit) -> bool:
        """Whether an offset is below an end that is known already.

        Ends only rise, so known ends stay valid.
        """
        return commit.offset <= self._ends.get(commit.topic_id, _NO_ENDS).get(commit.partition, -1)

    async def _check(self, commit: OffsetCommit) -> None:
        end = await self._topics.end(commit.topic, commit.partition)
        self._ends.setdefault(commit.topic_id, {})[commit.partition] = end
        if commit.offset > end:
            raise OffsetOutOfRange(
                f"offsets: {commit.topic}/{commit.partition} ends at {end}, but the offset is "
                f"{commit.offset}; send at most {end}",
                end=end,
            )

    async def _lag(self, topic: str, partition: int, committed: CommittedOffset) -> OffsetLag:
        end: int | None = None
        lag: int | None = None
        lag_s: float | None = None
        offset = committed.offset
        with contextlib.suppress(RaftlogError):  # unknown without a leader
            extent = await self._topics.extent(topic, partition)
            end = extent.end
            left = await backlog(self._topics, topic, partition, offset, extent)
            lag, lag_s = left.records(offset), left.age_s(offset, self._clock.wall_ms())
        return OffsetLag(
            topic=topic, partition=partition, committed=committed, high_watermark=end, lag=lag, lag_s=lag_s
        )


async def gathered(work: Iterable[Coroutine[None, None, Result]]) -> list[Result]:
    """Run coroutines, ``ASKED_AT_ONCE`` at a time; return their results in order."""
    room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(each: Coroutine[None, None, Result]) -> Result:
        async with room:
            return await each

    return list(await asyncio.gather(*(one(each) for each in work)))
