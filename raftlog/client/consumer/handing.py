"""Records between the core of a consumer and its user: those of the newest take, until they are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from raftlog.client.consumer.batch_transaction import BatchTransactionCore
from raftlog.client.consumer.core import ConsumerCore, Place
from raftlog.client.consumer.options import Delivery
from raftlog.client.messages import Message
from raftlog.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Taken:
    """Records of one partition, in order. They count until the partition is read in another place."""

    target: TopicPartition
    place: Place
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Unread:
    """Records of a partition that was paused after they were handed out, by the offset of the first one."""

    target: TopicPartition
    place: Place
    offset: int


class Takes:
    """Takes of one consumer. A take outlives a caller that is cancelled, and the next call gets its records.

    They would be lost otherwise: the core counts them as handed out, and later commits pass them.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._task: asyncio.Task[Taken | None] | None = None

    async def next(
        self, count_max: int, wait_s: float, unread: Unread | None
    ) -> asyncio.Task[Taken | None] | None:
        """A take that has ended, or None if an earlier one does not end in time. On the client's loop.

        It is returned again until ``done``. What is ``unread`` is given back, to be handed out later.
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
        """Whether records of a cancelled call may be handed out. Those of a paused partition go back."""
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
        """The user has the records of the take that has ended. On the user's thread, while no call runs."""
        self._task = None


class Handed:
    """Records that were handed out and are not all handled. They belong to the user's thread."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._taken: Taken | None = None  # its messages are those that are left, the next one last
        self._last: Message | None = None

    def put(self, taken: Taken) -> None:
        """The next ones."""
        self._taken = replace(taken, messages=taken.messages[::-1])

    def next(self) -> Message | None:
        """Acknowledge the last one; the next one, or None."""
        self.done()
        taken = self._due()
        if taken is None:
            return None
        self._core.is_handling = True
        if not self._counts(taken):
            self._core.is_handling = False  # a rebalance came first
            return None
        self._last = taken.messages.pop()
        return self._last

    def batch(self, count_max: int) -> tuple[list[Message], BatchTransactionCore] | None:
        """So many at once, and their transaction, which has not begun.

        Exactly once hands out all at once: after an abort of the first ones, the others would be too early.
        """
        self.done()
        generation = self._core.generation  # of this epoch, which ends before the next generation begins
        taken = self._due()
        if taken is None:
            return None
        self._core.is_handling = True
        count = len(taken.messages) if self._core.options.is_exactly_once else count_max
        messages = taken.messages[: -count - 1 : -1]
        del taken.messages[-count:]
        self._last = messages[-1]
        return messages, BatchTransactionCore(self._core, taken.place[0], generation, messages[-1])

    def unread(self) -> Unread | None:
        """What is left though a take is due: the records of a partition that is paused."""
        taken = self._taken
        if taken is None or not taken.messages or not self._counts(taken):
            return None
        return Unread(taken.target, taken.place, taken.messages[-1].offset)

    def _due(self) -> Taken | None:
        """Records that may be handed out."""
        taken = self._taken
        if taken is None or not taken.messages or not self._counts(taken):
            return None
        return None if self._core.is_paused(taken.target) else taken

    def _counts(self, taken: Taken) -> bool:
        return taken.place == self._core.place(taken.target)

    def done(self) -> None:
        """What was handed out last is processed."""
        if self._last is not None and self._core.options.delivery is Delivery.AT_LEAST_ONCE:
            self._core.acknowledge(self._last)
        self._last = None
        self._core.is_handling = False


class Making:
    """Makes a core on the client's loop. The core is closed again if its caller is cancelled meanwhile."""

    def __init__(self, make: Callable[[], ConsumerCore]) -> None:
        self._make = make
        self._core: ConsumerCore | None = None
        self._is_unwanted = False
        self._closing: asyncio.Task[None] | None = None

    async def make(self) -> ConsumerCore:
        """A core that has begun to join."""
        if self._is_unwanted:
            raise asyncio.CancelledError
        self._core = self._make()
        return self._core

    def undo(self) -> None:
        """Let the core leave, or never make it. On the client's loop."""
        self._is_unwanted = True
        if self._core is not None:
            self._closing = asyncio.create_task(self._core.close())


def _seen(take: asyncio.Task[Taken | None]) -> None:
    if not take.cancelled():
        take.exception()  # the next call raises it, if there is one
