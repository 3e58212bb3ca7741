"""One worker whose records, function and topics are in memory, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from raftlog.client.messages import Message
from raftlog.client.worker.core import Call, WorkerCore
from raftlog.client.worker.failures import Failures
from raftlog.client.worker.options import WorkerSettings, worker_options
from raftlog.records.builder import Record
from tests.helpers.virtual_time import VirtualClock, eventually


class MemoryRecords:
    """The consumer of a worker, in memory. A test hands out records, and takes partitions away."""

    def __init__(self) -> None:
        self.epoch = 0
        self.is_handling = False
        self.acknowledged: list[int] = []
        self.claimed: list[int] = []
        self.is_closed = False
        self._ready: deque[list[Message]] = deque()
        self._changed = asyncio.Event()
        self.may_claim = asyncio.Event()
        self.may_claim.set()

    def hand_out(self, *offsets: int, topic: str = "t", value: bytes = b"", headers: tuple = ()) -> None:  # type: ignore[type-arg]
        """Hand out these offsets of one partition."""
        self._ready.append(
            [Message(topic, 0, offset, 0, b"k%d" % offset, value, headers, 0) for offset in offsets]
        )
        self._changed.set()

    def begin_rebalance(self) -> None:
        """Take all partitions away."""
        self.epoch += 1
        self._ready.clear()

    async def take(self, count_max: int, wait_s: float) -> tuple[int, list[Message]]:
        """See ``Records``."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._ready:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return self.epoch, []
        ready = self._ready.popleft()
        if ready[count_max:]:
            self._ready.appendleft(ready[count_max:])
        return self.epoch, ready[:count_max]

    async def claim(self, message: Message, epoch: int) -> bool:
        """See ``Records``: while a test clears ``may_claim``, the commit is on its way."""
        await self.may_claim.wait()
        if epoch == self.epoch:
            self.claimed.append(message.offset)
        return epoch == self.epoch

    def acknowledge(self, message: Message) -> None:
        """See ``Records``."""
        self.acknowledged.append(message.offset)

    async def close(self) -> None:
        """See ``Records``."""
        self.is_closed = True


class Handling:
    """A function whose calls end when a test says so."""

    def __init__(self) -> None:
        self.calls: dict[int, asyncio.Future[None]] = {}
        self.begun: list[int] = []

    async def __call__(self, message: Message) -> None:
        self.begun.append(message.offset)
        self.calls[message.offset] = asyncio.get_running_loop().create_future()
        await self.calls[message.offset]

    def end(self, offset: int, error: Exception | None = None) -> None:
        """End the call of a record."""
        if error is None:
            self.calls[offset].set_result(None)
        else:
            self.calls[offset].set_exception(error)


class World:
    """One worker with its records, its function, and the topics that it writes."""

    def __init__(self, call: Call | None = None, **settings: object) -> None:
        self.records, self.handling = MemoryRecords(), Handling()
        self.stored: list[tuple[str, int, Record]] = []
        self.delays_ms: list[int] = []
        self.refusals: list[Exception] = []
        merged: WorkerSettings = {"group": "g", "concurrency": 2, "order": "none"} | settings  # type: ignore[assignment]
        options = worker_options("t", **merged)
        failures = Failures(options, self.append, random.Random(1))
        failures.partition_counts = {"t.g.retry": 1, "t.g.dlq": 1}
        self.core = WorkerCore(options, self.records, failures, call or self.handling, VirtualClock())
        self.running = asyncio.create_task(self.core.run())

    async def append(self, topic: str, partition: int, record: Record, delay_ms: int) -> None:
        """Store a failed record, unless a test has it refused."""
        if self.refusals:
            raise self.refusals.pop()
        self.stored.append((topic, partition, record))
        self.delays_ms.append(delay_ms)

    async def begun(self, *offsets: int) -> None:
        """Wait until the calls of these records have begun."""
        await eventually(lambda: self.handling.begun == [*offsets])

    async def stop(self) -> BaseException | None:
        """Stop the worker; what has ended it before, if anything."""
        self.core.stop()
        return await self.running
