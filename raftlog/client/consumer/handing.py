"""Hands records to the user of a consumer: holds the records of the newest take until they are handled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from raftlog.client.consumer.batch_transaction import BatchTransactionCore
from raftlog.client.consumer.core import ConsumerCore, Place
from raftlog.client.delivery import Delivery
from raftlog.client.forks import mark_in_children
from raftlog.client.messages import Message
from raftlog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Taken:
    """Records of one partition from one take, in order.

    Invalid once the ``Place`` of the partition changes.
    """

    target: TopicPartition
    place: Place
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Unread:
    """The records to give back of a partition that was paused after a take: all from ``offset`` on."""

    target: TopicPartition
    place: Place
    offset: int


@dataclass(slots=True)
class Claim:
    """A request to commit records up to ``last``, taken in ``epoch``.

    ``is_done`` is true once the records may be handed out.
    """

    last: Message
    epoch: int
    is_done: bool = False

    async def of(self, core: ConsumerCore) -> bool:
        """Commit the records before they are handed out; see ``ConsumerCore.claim``."""
        return await core.claim(self.last, self.epoch)


class Takes:
    """The takes of one consumer.

    A take continues when its caller is cancelled; the next caller gets the records. Otherwise the records
    would be lost: the core counts them as handed out, so later commits would skip them.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._task: asyncio.Task[Taken | None] | None = None

    async def next(
        self, count_max: int, wait_s: float, unread: Unread | None
    ) -> asyncio.Task[Taken | None] | None:
        """Return a completed take, or None if an earlier take does not complete in time.

        On the client's loop. Calls before ``done`` return this take again. ``unread`` records are given back,
        to be handed out later.
        """
        if unread is not None:
            await self._core.read_again(unread.target, unread.place, unread.offset)
        ends_s = asyncio.get_running_loop().time() + wait_s
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=wait_s)
            if not self._task.done():
                return None
            if self._task.exception() is not None or await self._is_due(self._task.result()):
                return self._task
            wait_s = max(0.0, ends_s - asyncio.get_running_loop().time())
        self._task = asyncio.create_task(self._take(count_max, wait_s))
        self._task.add_done_callback(_seen)
        await asyncio.wait((self._task,))
        return self._task

    async def _is_due(self, taken: Taken | None) -> bool:
        """Whether the records of a cancelled call may be handed out.

        Records of a paused partition are given back.
        """
        if taken is None or taken.place != self._core.place(taken.target):
            return False
        if self._core.is_paused(taken.target):
            await self._core.read_again(taken.target, taken.place, taken.messages[0].offset)
            return False
        return True

    async def _take(self, count_max: int, wait_s: float) -> Taken | None:
        _, messages = await self._core.take(count_max, wait_s)
        if not messages:
            return None
        target = TopicPartition(messages[0].topic, messages[0].partition)
        return Taken(target, self._core.place(target), messages)

    def done(self) -> None:
        """Note that the user has the records of the last take. On the user's thread, while no call runs."""
        self._task = None


class Handed:
    """The records of the newest take that are not handled yet. For the user's thread."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._taken: Taken | None = None
        self._messages: list[Message] = []  # the remaining records of ``_taken``, the next one last
        self._version = -1  # the core's version when the records were due
        self._last: Message | None = None
        mark_in_children(self)

    def end_in_child(self) -> None:
        """Drop the taken records, which belong to the parent process."""
        self._messages, self._last = [], None

    def put(self, taken: Taken) -> None:
        """Set the records to hand out next."""
        self._taken, self._messages, self._version = taken, taken.messages[::-1], -1

    def next(self) -> Message | None:
        """Acknowledge the record that was returned last, and return the next record, or None."""
        self.done()
        core = self._core
        if not self._messages or (self._version != core.version and not self._are_due()):
            return None
        core.is_handling = True
        if self._version != core.version:
            core.is_handling = False  # a rebalance came first
            return None
        self._last = self._messages.pop()
        return self._last

    def batch(self, count_max: int) -> tuple[list[Message], BatchTransactionCore] | None:
        """Return at most ``count_max`` records, and their transaction, which has not begun.

        With ``exactly_once`` the batch has all records of the take: if some were aborted, the remaining
        records would be handed out before them.
        """
        generation = self._core.generation  # read first: the epoch ends before the next generation begins
        first, taken = self.next(), self._taken
        if first is None or taken is None:
            return None
        more = len(self._messages) if self._core.options.is_exactly_once else count_max - 1
        messages = [first, *self._messages[: -more - 1 : -1]]
        self._messages, self._last = self._messages[: len(self._messages) - len(messages) + 1], messages[-1]
        return messages, BatchTransactionCore(self._core, taken.place[0], generation, messages[-1])

    @contextlib.contextmanager
    def claiming(self, messages: Sequence[Message]) -> Iterator[Claim]:
        """At the end of the block, put ``messages`` back unless they are claimed.

        ``messages`` are the records handed out last.
        """
        claim = Claim(messages[-1], self._taken.place[0] if self._taken else -1)
        try:
            yield claim
        finally:
            if not claim.is_done:
                self._messages += reversed(messages)
                self._last, self._core.is_handling = None, False

    def unread(self) -> Unread | None:
        """The records to give back before the next take, because their partition is paused; or None."""
        taken = self._taken
        if taken is None or not self._are_left():
            return None
        return Unread(taken.target, taken.place, self._messages[-1].offset)

    def _are_due(self) -> bool:
        """Whether there are records that may be handed out."""
        version = self._core.version
        if self._taken is None or not self._are_left() or self._core.is_paused(self._taken.target):
            return False
        self._version = version
        return True

    def _are_left(self) -> bool:
        """Whether there are records whose partition still has their ``Place``."""
        taken = self._taken
        return taken is not None and bool(self._messages) and taken.place == self._core.place(taken.target)

    def done(self) -> None:
        """Note that the records handed out last are processed."""
        if self._last is not None and self._core.options.delivery is Delivery.AT_LEAST_ONCE:
            self._core.acknowledge(self._last)
        self._last = None
        self._core.is_handling = False


def _seen(take: asyncio.Task[Taken | None]) -> None:
    if not take.cancelled():
        take.exception()  # the next call, if any, raises the error
