"""The blocking and the asynchronous consumer, which call a core on the client's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from raftlog.client.consumer.batches import AsyncMessageBatch, MessageBatch
from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.handing import Handed, Taken, Takes
from raftlog.client.delivery import Delivery
from raftlog.client.messages import Message
from raftlog.client.options import Duration, positive, seconds
from raftlog.client.partition import Position
from raftlog.client.portal import Portal
from raftlog.types import TopicPartition

Result = TypeVar("Result")


class _Face:
    """The common part of ``Consumer`` and ``AsyncConsumer``."""

    def __init__(self, core: ConsumerCore, portal: Portal) -> None:
        self._core = core
        self._portal = portal
        self._handed = Handed(core)
        self._takes = Takes(core)
        self._claims = core.options.delivery is Delivery.AT_MOST_ONCE

    def __repr__(self) -> str:
        module = "raftlog" if isinstance(self, Consumer) else "raftlog.aio"
        return f"<{module}.Consumer {self._core.described}>"

    @property
    def member_id(self) -> str:
        """The id of this member of the group."""
        return self._core.member_id

    @property
    def generation(self) -> int:
        """The newest generation that this member joined; -1 before the first."""
        return self._core.generation

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions of this member; empty until it has joined, at its first use."""
        return self._core.assignment

    @property
    def is_assigned(self) -> bool:
        """Whether this member knows which partitions it has, perhaps none; False during a rebalance."""
        return self._core.is_assigned

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        unread = self._handed.unread()
        return self._core.positions() | ({} if unread is None else {unread.target: unread.offset})

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """The number of records that were not handed out yet, by partition, at the last response.

        Partitions without a response are left out.
        """
        lag, taken = self._core.lag(), self._core.positions()
        behind = {target: taken.get(target, offset) - offset for target, offset in self.positions.items()}
        return {target: count + behind.get(target, 0) for target, count in lag.items()}

    def _used(self, work: Callable[[], Awaitable[Result]]) -> Callable[[], Awaitable[Result]]:
        """Return a call that begins the consumer, which then joins its group, and runs ``work``."""

        async def used() -> Result:
            await self._core.begin()
            return await work()

        return used

    def _abandon(self) -> None:
        """Close the consumer, because its ``with`` block could not be entered.

        Called on the client's loop.
        """
        self._closing = asyncio.create_task(self._core.close())

    def _check_single(self) -> None:
        """Raise an error for single records with ``exactly_once``: only batches have transactions."""
        if self._core.options.is_exactly_once:
            raise RuntimeError("delivery is 'exactly_once', which hands out batches: iterate over batches()")

    def _bounds(self, limit: int | None, wait: Duration) -> tuple[int, float]:
        """The number of records that a take may return, and the seconds that the take may wait."""
        count = self._core.options.limit if limit is None else positive("limit", limit)
        return count, seconds("wait", wait)

    def _take(self, count: int, wait_s: float) -> Callable[[], Awaitable[asyncio.Task[Taken | None] | None]]:
        unread = self._handed.unread()
        return self._used(lambda: self._takes.next(count, wait_s, unread))

    def _accept(self, take: asyncio.Task[Taken | None] | None) -> None:
        """Raise the error of the take, or keep its records to hand them out."""
        if take is None:
            return
        try:
            taken = take.result()
            if taken is not None:
                self._handed.put(taken)
        finally:
            self._takes.done()

    def _seek(self, topic: str, partition: int, position: Position) -> Callable[[], Awaitable[None]]:
        """The coroutine of a seek.

        A record that is being handled is no longer acknowledged if it is in the partition of the seek.
        """
        return self._used(lambda: self._core.seek(TopicPartition(topic, partition), position))

    def _pause(self, targets: Collection[TopicPartition], is_paused: bool) -> Callable[[], Awaitable[None]]:
        async def pause() -> None:
            self._core.pause(targets, is_paused=is_paused)

        return self._used(pause)


class Consumer(_Face):
    """A member of a group, for one thread: the iterable that ``client.consumer(...)`` returns.

    The consumer joins at its first use: a ``with`` block, a loop, or any method but ``close``. Asking for the
    next record acknowledges the previous one. Leaving the ``with`` block with an error does not acknowledge
    the record that was being handled.
    """

    def __enter__(self) -> Self:
        try:
            self._portal.call(self._core.begin)
        except BaseException:
            self._portal.post(self._abandon)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._handed.done()
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Iterate over records, without end."""
        while True:
            message = self.poll()
            if message is not None:
                yield message

    def poll(self, wait: Duration = "1s") -> Message | None:
        """The next record, or None if none comes within ``wait``. Acknowledges the previous record.

        If a partition cannot be read, one call raises the reason, such as ``InvalidRecord``: ``seek`` past
        the record to read on. If an error has ended this consumer, such as an exception of an assignor, each
        call raises this error.
        """
        self._check_single()
        message = self._handed.next()
        if message is None:
            self._accept(self._portal.call(self._take(*self._bounds(None, wait))))
            message = self._handed.next()
        if message is None or not self._claims or self._claim([message]):
            return message
        return None

    def batches(self, limit: int | None = None, wait: Duration = "1s") -> Iterator[MessageBatch]:
        """Yield lists of records without end, each list of one partition.

        Taking a list acknowledges the previous list. Raises the errors of ``poll``. With ``exactly_once``
        nothing is acknowledged: ``with batch.transaction() as tx`` handles a batch.
        """
        count, wait_s = self._bounds(limit, wait)
        while True:
            batch = self._handed.batch(count)
            if batch is None:
                self._accept(self._portal.call(self._take(count, wait_s)))
                batch = self._handed.batch(count)
            if batch is not None and (not self._claims or self._claim(batch[0])):
                yield MessageBatch(*batch, self._portal)

    def _claim(self, messages: list[Message]) -> bool:
        """Commit records before they are handed out. After a failure the next call returns these records."""
        with self._handed.claiming(messages) as claim:
            claim.is_done = self._portal.call(partial(claim.of, self._core))
        return claim.is_done

    def commit(self) -> None:
        """Commit everything up to and including the record that was handed out last.

        Raises ``StaleGeneration``, ``MemberNotFound`` or ``RebalanceInProgress`` when the partitions are
        lost.
        """
        self._handed.done()
        self._portal.call(self._used(self._core.commit))

    def seek(self, topic: str, partition: int, position: Position) -> None:
        """Continue at another position of a partition. Raises ``KeyError`` if the partition is not assigned.

        A seek acknowledges no record. So the record that is being handled is handed out again if its handling
        fails. If this record is in the partition of the seek, it is not acknowledged later either.
        """
        self._portal.call(self._seek(topic, partition, position))

    def pause(self, targets: Collection[TopicPartition]) -> None:
        """Hand out no records of these partitions until ``resume``. Raises ``KeyError`` for other partitions.

        Records that this consumer has already fetched are kept back, too.
        """
        self._portal.call(self._pause(targets, True))

    def resume(self, targets: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again. Raises ``KeyError`` for other partitions."""
        self._portal.call(self._pause(targets, False))

    def close(self) -> None:
        """Commit acknowledged offsets, and leave the group."""
        self._portal.end(self._core.close)


class AsyncConsumer(_Face):
    """A member of a group, for one task, used with ``async for``; see ``Consumer``.

    The consumer has its own thread, so it remains a member of the group even while the event loop of the
    application is blocked.
    """

    async def __aenter__(self) -> Self:
        try:
            await self._portal.awaited(self._core.begin)
        except BaseException:
            self._portal.post(self._abandon)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._handed.done()
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over records, without end."""
        while True:
            message = await self.poll()
            if message is not None:
                yield message

    async def poll(self, wait: Duration = "1s") -> Message | None:
        """The next record, or None if none comes within ``wait``. Acknowledges the previous record.

        If a partition cannot be read, one call raises the reason, such as ``InvalidRecord``: ``seek`` past
        the record to read on. If an error has ended this consumer, such as an exception of an assignor, each
        call raises this error.
        """
        self._check_single()
        message = self._handed.next()
        if message is None:
            self._accept(await self._portal.awaited(self._take(*self._bounds(None, wait))))
            message = self._handed.next()
        if message is None or not self._claims or await self._claim([message]):
            return message
        return None

    async def batches(
        self, limit: int | None = None, wait: Duration = "1s"
    ) -> AsyncIterator[AsyncMessageBatch]:
        """Yield lists of records without end, each list of one partition.

        Taking a list acknowledges the previous list. Raises the errors of ``poll``. With ``exactly_once``
        nothing is acknowledged: ``async with batch.transaction() as tx`` handles a batch.
        """
        count, wait_s = self._bounds(limit, wait)
        while True:
            batch = self._handed.batch(count)
            if batch is None:
                self._accept(await self._portal.awaited(self._take(count, wait_s)))
                batch = self._handed.batch(count)
            if batch is not None and (not self._claims or await self._claim(batch[0])):
                yield AsyncMessageBatch(*batch, self._portal)

    async def _claim(self, messages: list[Message]) -> bool:
        """Commit records before they are handed out; see ``Consumer._claim``."""
        with self._handed.claiming(messages) as claim:
            claim.is_done = await self._portal.awaited(partial(claim.of, self._core))
        return claim.is_done

    async def commit(self) -> None:
        """Commit everything up to and including the record that was handed out last.

        Raises ``StaleGeneration``, ``MemberNotFound`` or ``RebalanceInProgress`` when the partitions are
        lost.
        """
        self._handed.done()
        await self._portal.awaited(self._used(self._core.commit))

    async def seek(self, topic: str, partition: int, position: Position) -> None:
        """Continue at another position of a partition. Raises ``KeyError`` if the partition is not assigned.

        A seek acknowledges no record. So the record that is being handled is handed out again if its handling
        fails. If this record is in the partition of the seek, it is not acknowledged later either.
        """
        await self._portal.awaited(self._seek(topic, partition, position))

    async def pause(self, targets: Collection[TopicPartition]) -> None:
        """Hand out no records of these partitions until ``resume``. Raises ``KeyError`` for other partitions.

        Records that this consumer has already fetched are kept back, too.
        """
        await self._portal.awaited(self._pause(targets, True))

    async def resume(self, targets: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again. Raises ``KeyError`` for other partitions."""
        await self._portal.awaited(self._pause(targets, False))

    async def close(self) -> None:
        """Commit acknowledged offsets, and leave the group."""
        if self._portal.is_open:
            await self._portal.awaited(self._core.close)
