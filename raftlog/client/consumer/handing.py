"""Records between the core of a consumer and its user: those of the newest take, until they are handled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlog.client.consumer.batch_transaction import BatchTransactionCore
from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.options import Delivery
from raftlog.client.messages import Message

Taken = tuple[int, list[Message]]  # the epoch, and records


class Takes:
    """Takes of one consumer. A take outlives a caller that is cancelled, and the next call gets its records.

    They would be lost otherwise: the core counts them as handed out, and later commits pass them.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._task: asyncio.Task[Taken] | None = None

    async def next(self, count_max: int, wait_s: float) -> asyncio.Task[Taken] | None:
        """A take that has ended, or None if an earlier one does not end in time. On the client's loop.

        It is returned again until ``done``.
        """
        ends_s = asyncio.get_running_loop().time() + wait_s
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=wait_s)
            if not self._task.done():
                return None
            if self._task.exception() is not None or self._task.result()[1]:
                return self._task
            wait_s = max(0.0, ends_s - asyncio.get_running_loop().time())
        self._task = asyncio.create_task(self._core.take(count_max, wait_s))
        self._task.add_done_callback(_seen)
        await asyncio.wait((self._task,))
        return self._task

    def done(self) -> None:
        """The user has the records of the take that has ended. On the user's thread, while no call runs."""
        self._task = None


class Handed:
    """Records that were handed out and are not all handled. They belong to the user's thread."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._epoch = -1
        self._messages: list[Message] = []
        self._last: Message | None = None

    def put(self, epoch: int, messages: list[Message]) -> None:
        """The next ones."""
        self._epoch, self._messages = epoch, messages[::-1]

    def next(self) -> Message | None:
        """Acknowledge the last one; the next one, or None."""
        self.done()
        if self._messages and self._epoch == self._core.epoch:
            self._core.is_handling = True
            if self._epoch != self._core.epoch:
                self._core.is_handling = False  # a rebalance came first
                return None
            self._last = self._messages.pop()
            return self._last
        return None

    def batch(self, count_max: int) -> tuple[list[Message], BatchTransactionCore] | None:
        """So many at once, and their transaction, which has not begun.

        Exactly once hands out all at once: after an abort of the first ones, the others would be too early.
        """
        self.done()
        generation = self._core.generation  # of this epoch, which ends before the next generation begins
        if not self._messages or self._epoch != self._core.epoch:
            return None
        self._core.is_handling = True
        count = len(self._messages) if self._core.options.is_exactly_once else count_max
        messages, self._messages = self._messages[: -count - 1 : -1], self._messages[:-count]
        self._last = messages[-1]
        return messages, BatchTransactionCore(self._core, self._epoch, generation, messages[-1])

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


def _seen(take: asyncio.Task[Taken]) -> None:
    if not take.cancelled():
        take.exception()  # the next call raises it, if there is one
