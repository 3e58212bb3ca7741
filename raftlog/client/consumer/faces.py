"""The blocking and the asynchronous consumer. Both talk to a core on the client's own thread."""

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
        """The newest generation that it joined; -1 before."""
        return self._core.generation

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions of this member; empty until it has joined, at its first use."""
        return self._core.assignment

    @property
    def is_assigned(self) -> bool:
        """Whether this member knows its partitions, if any; not while a rebalance is under way."""
        return self._core.is_assigned

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        unread = self._handed.unread()
        return self._core.positions() | ({} if unread is None else {unread.target: unread.offset})

    @property
    def lag(self) -> dict[TopicPartition, int]:
        """Records that are not handed out, as last seen. Partitions not read yet are left out."""
        lag, taken = self._core.lag(), self._core.positions()
        behind = {target: taken.get(target, offset) - offset for target, offset in self.positions.items()}
        return {target: count + behind.get(target, 0) for target, count in lag.items()}

    def _used(self, work: Callable[[], Awaitable[Result]]) -> Callable[[], Awaitable[Result]]:
        """The call that does this for a consumer that has begun: it joins its group at its first use."""

        async def used() -> Result:
            await self._core.begin()
            return await work()

        return used

    def _abandon(self) -> None:
        """Close it, since its block was not entered. On the client's loop."""
        self._closing = asyncio.create_task(self._core.close())

    def _check_single(self) -> None:
        """Raise for single records, which have no transaction."""
        if self._core.options.is_exactly_once:
            raise RuntimeError("exactly once hands out batches: iterate over batches(), not over records")

    def _bounds(self, limit: int | None, wait: Duration) -> tuple[int, float]:
        """The number of records that a take may return, and the seconds that it may wait."""
        count = self._core.options.limit if limit is None else positive("limit", limit)
        return count, seconds("wait", wait)

    def _take(self, count: int, wait_s: float) -> Callable[[], Awaitable[asyncio.Task[Taken | None] | None]]:
        unread = self._handed.unread()
        return self._used(lambda: self._takes.next(count, wait_s, unread))

    def _accept(self, take: asyncio.Task[Taken | None] | None) -> None:
        """Raise what the take raised, or keep its records to hand them out."""
        if take is None:
            return
        try:
            taken = take.result()
            if taken is not None:
                self._handed.put(taken)
        finally:
            self._takes.done()

    def _seek(self, topic: str, partition: int, position: Position) -> Callable[[], Awaitable[None]]:
        """The call that seeks. The record in hand is acknowledged later, if it is of another partition."""
        return self._used(lambda: self._core.seek(TopicPartition(topic, partition), position))

    def _pause(self, targets: Collection[TopicPartition], is_paused: bool) -> Callable[[], Awaitable[None]]:
        async def pause() -> None:
            self._core.pause(targets, is_paused=is_paused)

        return self._used(pause)


class Consumer(_Face):
    """A member of a group, for one thread. Iterate over it; made by ``client.consumer(...)``.

    It joins at its first use: a ``with`` block, a loop, or any method but ``close``. A record is acknowledged
    when the next one is asked for. Leaving the ``with`` block with an error does not acknowledge the record
    that was being handled.
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
        """Records without end."""
        while True:
            message = self.poll()
            if message is not None:
                yield message

    def poll(self, wait: Duration = "1s") -> Message | None:
        """The next record, or None if none comes within ``wait``. Acknowledges the one before.

        Raises why a partition cannot be read, once for each, such as ``InvalidRecord``: ``seek`` behind it
        reads on. Raises what has ended this consumer, such as an exception of an assignor, each time.
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
        """Lists of records of one partition each, without end. Each acknowledges the one before.

        Raises what ``poll`` raises. Exactly once acknowledges nothing:
        ``with batch.transaction() as tx`` handles a batch.
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
        """Commit them first, at most once; if that fails for now, they are the next records again."""
        with self._handed.claiming(messages) as claim:
            claim.is_done = self._portal.call(partial(claim.of, self._core))
        return claim.is_done

    def commit(self) -> None:
        """Commit everything up to the record that was handed out last, that one included.

        Raises ``StaleGeneration``, ``MemberNotFound`` or ``RebalanceInProgress`` when the partitions are
        lost.
        """
        self._handed.done()
        self._portal.call(self._used(self._core.commit))

    def seek(self, topic: str, partition: int, position: Position) -> None:
        """Continue elsewhere in a partition of this member. Raises ``KeyError`` for others.

        Acknowledges nothing: the record being handled comes again if its handling fails. One of the same
        partition is not acknowledged later either.
        """
        self._portal.call(self._seek(topic, partition, position))

    def pause(self, targets: Collection[TopicPartition]) -> None:
        """Hand out no records of these partitions until ``resume``. Raises ``KeyError`` for others.

        Records that this consumer has taken already are kept back, too.
        """
        self._portal.call(self._pause(targets, True))

    def resume(self, targets: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again. Raises ``KeyError`` for partitions of others."""
        self._portal.call(self._pause(targets, False))

    def close(self) -> None:
        """Commit what is acknowledged, and leave the group."""
        self._portal.end(self._core.close)


class AsyncConsumer(_Face):
    """A member of a group, for one task. Iterate over it with ``async for``; see ``Consumer``.

    It has a thread of its own, so a blocked event loop of the application does not end its membership.
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
        """Records without end."""
        while True:
            message = await self.poll()
            if message is not None:
                yield message

    async def poll(self, wait: Duration = "1s") -> Message | None:
        """The next record, or None if none comes within ``wait``. Acknowledges the one before.

        Raises why a partition cannot be read, once for each, such as ``InvalidRecord``: ``seek`` behind it
        reads on. Raises what has ended this consumer, such as an exception of an assignor, each time.
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
        """Lists of records of one partition each, without end. Each acknowledges the one before.

        Raises what ``poll`` raises. Exactly once acknowledges nothing:
        ``async with batch.transaction() as tx`` handles a batch.
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
        """Commit everything up to the record that was handed out last, that one included.

        Raises ``StaleGeneration``, ``MemberNotFound`` or ``RebalanceInProgress`` when the partitions are
        lost.
        """
        self._handed.done()
        await self._portal.awaited(self._used(self._core.commit))

    async def seek(self, topic: str, partition: int, position: Position) -> None:
        """Continue elsewhere in a partition of this member. Raises ``KeyError`` for others.

        Acknowledges nothing: the record being handled comes again if its handling fails. One of the same
        partition is not acknowledged later either.
        """
        await self._portal.awaited(self._seek(topic, partition, position))

    async def pause(self, targets: Collection[TopicPartition]) -> None:
        """Hand out no records of these partitions until ``resume``. Raises ``KeyError`` for others.

        Records that this consumer has taken already are kept back, too.
        """
        await self._portal.awaited(self._pause(targets, True))

    async def resume(self, targets: Collection[TopicPartition]) -> None:
        """Hand out records of these partitions again. Raises ``KeyError`` for partitions of others."""
        await self._portal.awaited(self._pause(targets, False))

    async def close(self) -> None:
        """Commit what is acknowledged, leave the group, and end the thread."""
        if self._portal.is_open:
            await self._portal.awaited(self._core.close)
