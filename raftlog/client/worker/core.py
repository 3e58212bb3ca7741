"""Runs one worker on the client's loop: takes records from its consumer and calls a function for each.

Decides: when a call begins, which records are acknowledged, and when no more records are taken. A rebalance
waits for the running calls; records whose call has not begun are dropped, since the next owner of the
partition gets them.

A record is in a retry topic only when its retry is due: until then it is a delayed message. No offset after
an unhandled record of a partition is committed. So after a crash, records that were handled after that record
are handled again, and no record is lost.

With ``at_most_once`` a worker takes no more records than it may handle at a time, and commits these records
before their calls begin. After the commit a record is lost only by a crash, not by a rebalance or the end of
the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from raftlog import tracing
from raftlog.client.delivery import Delivery
from raftlog.client.logs import client_logger
from raftlog.client.messages import Message
from raftlog.client.user_code import ProcessEnd, described, is_cancelled
from raftlog.client.worker.failures import Failures
from raftlog.client.worker.lanes import Lanes
from raftlog.client.worker.options import WorkerOptions
from raftlog.clock import Clock
from raftlog.errors import InvalidRecord
from raftlog.records.failures import FailedRecord, Origin, retry_topic
from raftlog.types import TopicPartition

HELD_MAX: Final = 1000  # records whose calls have not begun
TAKE_S: Final = 1.0
Call = Callable[[Message], Awaitable[None]]
"""Calls the user's function. Raises only subclasses of ``Exception``, see ``raftlog.client.user_code``."""
_log = client_logger()


class Progress:
    """The progress in one partition, whose records are handled in any order.

    A record counts for commits only if all earlier records are handled, too.
    """

    def __init__(self) -> None:
        self._begun: deque[Message] = deque()  # from the first unhandled record on
        self._handled: set[int] = set()  # handled offsets after the first unhandled one

    def add(self, message: Message) -> None:
        """Add the next record of the partition."""
        self._begun.append(message)

    def handled(self, offset: int) -> Message | None:
        """Note a handled record. Returns the last record of the handled prefix, if the prefix has grown."""
        self._handled.add(offset)
        last = None
        while self._begun and self._begun[0].offset in self._handled:
            last = self._begun.popleft()
            self._handled.discard(last.offset)
        return last


@dataclass(frozen=True, slots=True)
class _Job:
    """A record in two forms: as it was taken from a topic or retry topic, and as its producer sent it."""

    taken: Message
    record: FailedRecord
    progress: Progress
    lane: Hashable

    @property
    def message(self) -> Message:
        """The argument of the function: the record with its original topic, partition and offset."""
        sent = self.record
        return Message(*sent.origin, sent.timestamp_ms, sent.key, sent.value, sent.headers, self.taken.crc)


class Records(Protocol):
    """The operations that a worker needs of a consumer; see ``ConsumerCore``."""

    is_handling: bool

    @property
    def epoch(self) -> int:
        """The epoch, which rises when partitions are lost: records of an earlier epoch are dropped."""

    async def take(self, count_max: int, wait_s: float) -> tuple[int, list[Message]]:
        """The epoch, and records of one partition; an empty list if no record comes in time."""

    async def claim(self, message: Message, epoch: int) -> bool:
        """Commit this record and all earlier records of its partition.

        False if they must not be handled now.
        """

    def acknowledge(self, message: Message) -> None:
        """Mark a message and all earlier messages of the partition as processed."""

    async def close(self) -> None:
        """Commit, leave the group, and end."""


class WorkerCore:
    """A worker. ``run`` can be called only once."""

    def __init__(
        self, options: WorkerOptions, consumer: Records, failures: Failures, call: Call, clock: Clock
    ) -> None:
        self.options = options
        self._consumer = consumer
        self._failures = failures
        self._call = call
        self._clock = clock
        self._retry_topics = {retry_topic(topic, options.consumer.group) for topic in options.topics}
        self._epoch = -1
        self._progress: dict[TopicPartition, Progress] = {}
        self._lanes: Lanes[_Job] = Lanes()
        self._held_bytes = 0
        self._is_claiming = options.consumer.delivery is Delivery.AT_MOST_ONCE
        self._claim: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def run(self) -> BaseException | None:
        """Handle records until ``stop``; returns the error that ended the worker, if any."""
        taking = asyncio.create_task(self._take())
        try:
            return await self._ended
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.options.close_timeout_s):
                    await self._finish()
            if self._calls:
                _log.warning("%d calls of the handler still run after close_timeout", len(self._calls))
            await self._consumer.close()

    async def _finish(self) -> None:
        """Wait for claimed records and for calls that have begun."""
        if self._claim is not None:
            await asyncio.wait((self._claim,))
        self._begin_calls()
        while self._calls:
            await asyncio.wait(self._calls)

    def stop(self, error: BaseException | None = None) -> None:
        """Begin no more calls; ``run`` returns once the running calls end."""
        if not self._ended.done():
            self._ended.set_result(error)

    # Taking records.

    async def _take(self) -> None:
        try:
            while True:
                self._changed.clear()
                count = self._room
                if count:
                    await self._take_some(count)
                else:
                    await self._changed.wait()
                self._begin_calls()
        except Exception as error:
            self.stop(error)

    @property
    def _room(self) -> int:
        """The number of records that the next take may return."""
        held, most = len(self._lanes), self.options.consumer.limit
        if self._is_claiming:
            return min(most, self.options.concurrency - held - len(self._calls))
        return most if held < HELD_MAX and self._held_bytes < self.options.consumer.prefetch_bytes else 0

    async def _take_some(self, count: int) -> None:
        epoch, messages = await self._consumer.take(count, TAKE_S)
        if messages and self._is_claiming:
            self._consumer.is_handling = True
            self._claim = asyncio.create_task(self._accept_claimed(epoch, messages))
            await asyncio.shield(self._claim)  # committed records are handled, even when the worker ends
        else:
            self._accept(epoch, messages)

    async def _accept_claimed(self, epoch: int, messages: list[Message]) -> None:
        while not await self._consumer.claim(messages[-1], epoch):
            if epoch != self._consumer.epoch or self._ended.done():
                return  # not committed: their next owner gets them
        self._accept(epoch, messages)

    def _accept(self, epoch: int, messages: list[Message]) -> None:
        if epoch != self._epoch:  # a new assignment: records that have not begun are handed out again
            self._epoch = epoch
            self._progress = {}
            self._drop()
        for message in messages:
            target = TopicPartition(message.topic, message.partition)
            progress = self._progress.setdefault(target, Progress())
            progress.add(message)
            record = self._as_sent(message)
            job = _Job(message, record, progress, self._lane(record))
            self._lanes.add(job.lane, job)
            self._held_bytes += message.size_bytes

    def _drop(self) -> None:
        if self._is_claiming:
            return  # no other member gets committed records
        self._lanes.clear()
        self._held_bytes = 0

    def _as_sent(self, message: Message) -> FailedRecord:
        """The record as its producer sent it, with its failed attempts: 0 if it is not from a retry topic."""
        if message.topic in self._retry_topics:
            with contextlib.suppress(InvalidRecord):
                return FailedRecord.from_retry(
                    message.key, message.value, message.headers, message.timestamp_ms
                )
        return FailedRecord(
            origin=Origin(message.topic, message.partition, message.offset),
            key=message.key,
            value=message.value,
            headers=message.headers,
            timestamp_ms=message.timestamp_ms,
            attempts=0,
            reason="",
            failed_ms=0,
        )

    def _lane(self, record: FailedRecord) -> Hashable:
        """The lane of a record.

        A record from a retry topic has the lane of its original topic, so that calls for one key never
        overlap.
        """
        order, origin = self.options.order, record.origin
        if order == "partition":
            return origin.topic, origin.partition
        if order == "key" and record.key is not None:
            return origin.topic, record.key
        return origin

    # Calls.

    def _begin_calls(self) -> None:
        if self._consumer.epoch != self._epoch:
            self._drop()  # a rebalance has begun
        while len(self._calls) < self.options.concurrency and (self._is_claiming or not self._ended.done()):
            job = self._lanes.begin()
            if job is None:
                break
            self._held_bytes -= job.taken.size_bytes
            task = asyncio.create_task(self._handle(job))
            self._calls.add(task)
            task.add_done_callback(self._call_ended)
        self._consumer.is_handling = bool(self._calls) or (self._claim is not None and not self._claim.done())

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._changed.set()
        self._begin_calls()

    async def _handle(self, job: _Job) -> None:
        try:
            ends_worker = await self._attempt(job)
        except BaseException as error:
            if is_cancelled():
                raise
            ends_worker = error
        self._lanes.end(job.lane)
        if ends_worker is not None:
            self.stop(ends_worker)
            return
        last = job.progress.handled(job.taken.offset)
        if last is not None and not self._is_claiming:
            target = TopicPartition(last.topic, last.partition)
            if self._progress.get(target, job.progress) is job.progress:  # no new assignment meanwhile
                self._consumer.acknowledge(last)

    async def _attempt(self, job: _Job) -> BaseException | None:
        """Call the function, and store the record if the call fails.

        Returns or raises the error that ends the worker.
        """
        try:
            with tracing.processing(*job.record.origin, job.record, self.options.consumer.group):
                await self._call(self.options.decoders.decode(job.message))
        except ProcessEnd as end:
            return end.reason
        except Exception as error:
            failed = replace(
                job.record,
                attempts=job.record.attempts + 1,
                reason=described(error),
                failed_ms=self._clock.wall_ms(),
            )
            await self._failures.put_aside(failed, error)
        return None
