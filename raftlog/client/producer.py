"""Produces records, and returns their receipts.

Decides: the partition and the bytes of a record. Leaves to others: filling batches
(``buffer``), the order of sending (``pipeline``), and the requests (``sender``).

``append`` is the path of every record, from any thread; it does not use the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from raftlog import tracing
from raftlog.client import values
from raftlog.client.buffer import RECORD_OVERHEAD_BYTES, Buffer, PartitionQueue
from raftlog.client.bulk import append_all
from raftlog.client.forks import FORKED, mark_in_children
from raftlog.client.incarnation import Incarnation, TransactionName
from raftlog.client.metadata import Metadata
from raftlog.client.narrowing import Narrowing
from raftlog.client.options import Duration, ProducerOptions, seconds
from raftlog.client.partitioners import Router
from raftlog.client.receipts import Batch, OnAck, PendingReceipt, Stored
from raftlog.client.retries import pause_s
from raftlog.client.sender import PartitionSender, ProducerIdRequests
from raftlog.client.session import Session
from raftlog.client.transaction import AsyncTransaction
from raftlog.client.user_code import add_note
from raftlog.errors import NotSent, Overloaded, RaftlogError
from raftlog.records.builder import Record
from raftlog.units import counted

ERRORS_KEPT_MAX = 100
HURRIED_CLOSE: Duration = "4s"  # for records in flight when a block is left by Ctrl-C or cancellation


class AsyncProducer:
    """Sends records in batches. Made by ``client.producer(...)``, used as an ``async with`` block.

    Leaving the block waits until each record has its outcome, and raises an ``ExceptionGroup`` of all
    failures. With a ``transactional_id`` all records are sent in a ``transaction()``.
    """

    def __init__(
        self,
        session: Session,
        metadata: Metadata,
        topic: str | None,
        options: ProducerOptions,
        transaction: TransactionName | None = None,
    ) -> None:
        self._session = session
        self._metadata = metadata
        self._topic = topic
        self._options = options
        self._is_traced = tracing.is_active()
        self._transaction = transaction  # the transaction of all records
        self._incarnation = _incarnation(session, options) if transaction is None else None
        self._of_transaction: AsyncProducer | None = None
        self._producer_ids = ProducerIdRequests(session)
        self._loop = asyncio.get_running_loop()
        self._buffer = Buffer(options, session.clock, self._loop)
        self._routers: dict[str, Router] = {}
        self._narrowings: dict[str, Narrowing] = {}  # by topic with decommissioned partitions
        self._has_narrowed: set[str] = set()
        self._senders: dict[PartitionQueue, PartitionSender] = {}  # by queue that has had a record
        self._thread = threading.get_ident()
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self._errors: list[RaftlogError] = []
        self._failed_count = 0
        self._closed_seen = 0
        self._is_closed = False
        self._is_forked = False  # the event loop is in the parent process
        mark_in_children(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            await self.close(HURRIED_CLOSE)
        else:
            try:
                await self.flush()
            finally:
                await self.close(0)
        self.raise_errors(error)

    async def send(
        self,
        value: values.Value = None,
        *,
        key: values.Key = None,
        topic: str | None = None,
        partition: int | None = None,
        headers: values.Headers | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | int | None = None,
        on_ack: OnAck | None = None,
    ) -> PendingReceipt:
        """Send a record; waits while the buffer is full. Await the returned object for the receipt."""
        if asyncio.get_running_loop() is not self._loop:
            self._session.check_loop()
        while True:
            placed = self.append(value, key, topic, partition, headers, tags, timestamp, on_ack)
            if placed is not None:
                break
            await self.make_ready(topic)
        if self._buffer.closed_count != self._closed_seen:
            self._closed_seen = self._buffer.closed_count
            await asyncio.sleep(0)  # a batch is full: send it although the caller never waits
        return PendingReceipt(*placed)

    def send_nowait(
        self,
        value: values.Value = None,
        *,
        key: values.Key = None,
        topic: str | None = None,
        partition: int | None = None,
        headers: values.Headers | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | int | None = None,
        on_ack: OnAck | None = None,
    ) -> PendingReceipt:
        """Append a record without waiting.

        Raises ``Overloaded`` if the buffer is full or the topic is unknown.
        """
        if asyncio.get_running_loop() is not self._loop:
            self._session.check_loop()
        placed = self.append(value, key, topic, partition, headers, tags, timestamp, on_ack)
        if placed is None:
            raise Overloaded("the producer has no room or does not know the topic yet; use send, which waits")
        return PendingReceipt(*placed)

    async def send_all(
        self, records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Send many records without a receipt for each; waits while the buffer is full.

        Keys, values and header values of a ``Record`` are bytes or None. Failures are raised at the end of
        the producer's ``async with`` block.
        """
        self._session.check_loop()
        while records := self.append_all(records, topic, partition):
            await self.make_ready(topic)
        await asyncio.sleep(0)  # batches are full: send them although the caller never waits

    def transaction(self) -> AsyncTransaction:
        """The next transaction, as an ``async with`` block. Raises ``RuntimeError`` while one is open."""
        return AsyncTransaction(self.incarnation, self._in_transaction)

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of the transactional id. For the client only."""
        if self._incarnation is None:
            raise RuntimeError(
                "this producer has no transactions: create it with transactional_id=..., another id for each "
                "running producer"
            )
        return self._incarnation

    async def flush(self, timeout: Duration | None = None) -> None:
        """Send all records now, and wait until each record is stored or has failed.

        Raises ``TimeoutError`` after ``timeout``; the records stay in the buffer.
        """
        self._session.check_loop()
        async with asyncio.timeout(None if timeout is None else seconds("timeout", timeout)):
            self._pump_all()
            for batch in tuple(self._buffer.unfinished):
                await batch.wait()

    async def close(self, timeout: Duration = "30s") -> None:
        """Send all records, for at most ``timeout``; then fail the unsent records.

        Closing twice is harmless.
        """
        self._session.check_loop()
        self._is_closed = True
        if self._incarnation is not None:
            self._incarnation.is_closed = True
        if self._of_transaction is not None:
            await self._of_transaction.close(0)  # its block ends the transaction
        limit_s = seconds("timeout", timeout)
        if limit_s and self._buffer.unfinished:
            try:
                async with asyncio.timeout(limit_s):
                    await self.flush()
            except TimeoutError:
                pass  # the remaining records fail below
        self._buffer.close()
        for queue in self._waiting():
            self._sender(queue)
        for sender in list(self._senders.values()):
            await sender.close()
        for batch in tuple(self._buffer.unfinished):  # batches handed over meanwhile
            self._finish(batch, NotSent("the producer was closed before the record was sent"))
        await self._producer_ids.close()
        self._let_waiting_go()

    def __repr__(self) -> str:
        return f"<raftlog.aio.Producer {self._described}>"

    @property
    def _described(self) -> str:
        """A line of text with the topic, the addresses of the client, and the state."""
        state = "closed" if self._is_closed else "open"
        return f"topic={self._topic!r} {','.join(self._session.given_urls)} {state}"

    @property
    def is_closed(self) -> bool:
        """True if the producer accepts no more records."""
        return self._is_closed

    @property
    def failure(self) -> RaftlogError | None:
        """The first error of a record, if any has failed."""
        return self._errors[0] if self._errors else None

    def raise_errors(self, error: BaseException | None) -> None:
        """Raise the failures of all records as a group.

        If the block raises ``error``, only add a note to it.
        """
        if not self._errors:
            return
        message = f"{counted(self._failed_count, 'record')} not sent"
        if error is not None:
            add_note(error, f"{message}; the first of them: {self._errors[0]}")
            return
        raise ExceptionGroup(message, self._errors)

    def append(
        self,
        value: values.Value,
        key: values.Key,
        topic: str | None,
        partition: int | None,
        headers: values.Headers | None,
        tags: Sequence[str],
        timestamp: datetime | int | None,
        on_ack: OnAck | None,
    ) -> tuple[Batch, int] | None:
        """Append a record to the buffer. If it returns ``None``, await ``make_ready`` and append again.

        May be called from any thread. Raises ``InvalidRecord``, and ``RuntimeError`` after a fork.
        """
        router = self._routers.get(topic or self._topic or "")
        if router is None or self._is_closed:
            self._check_usable(topic)
            return None
        if value is not None and value.__class__ is not bytes:
            value = values.encode_value(value)
        if key is not None and key.__class__ is not bytes:
            key = values.encode_key(key)
        size_bytes = RECORD_OVERHEAD_BYTES
        if value is not None:
            size_bytes += len(value)
        if key is not None:
            size_bytes += len(key)
        pairs = values.encode_headers(headers, tags) if headers or tags else ()
        created = tracing.create(router.topic, pairs) if self._is_traced else None
        if created is not None:
            pairs = created.headers
        if pairs:
            size_bytes += values.headers_bytes(pairs)
        if timestamp is not None:
            timestamp = values.timestamp_ms(timestamp)
        record = Record(value, key, pairs, timestamp)
        queue = router.route(key, value, partition, size_bytes)
        placed = self._buffer.append(queue, record, size_bytes, on_ack, partition is not None)
        if created is not None and placed is not None:
            created.end()
        return placed

    def append_all(
        self, records: Sequence[Record], topic: str | None, partition: int | None
    ) -> Sequence[Record]:
        """Append records to the buffer, without receipts. Returns the records to append after ``make_ready``.

        For any thread. Keys and values must be bytes; this is not checked. Raises ``PartitionNotFound``.
        """
        router = self._routers.get(topic or self._topic or "")
        if router is None or self._is_closed:
            self._check_usable(topic)
            return records
        return append_all(router, self._buffer, records, partition)

    async def make_ready(self, topic: str | None) -> None:
        """Wait until the topic is known, or until the buffer may have room: the caller then appends again.

        Raises ``NotSent`` once the producer is closed, and the error that ends the search for the partitions.
        """
        name = topic or self._topic or ""
        if name not in self._routers:
            counts = await self._partition_counts(name)
            if name not in self._routers:
                self._add_router(name, *counts)
            return
        if self._is_closed:
            raise NotSent("the producer is closed")
        if self._buffer.is_full or name in self._narrowings:
            waiter = self._loop.create_future()
            self._waiting_for_room.append(waiter)
            self._pump_all()  # buffered records must not linger
            await waiter

    async def _counts(self, topic: str) -> tuple[int, int]:
        view = await self._metadata.topic(topic)
        return view.writable_count, view.partition_count

    async def _partition_counts(self, topic: str) -> tuple[int, int]:
        """The number of writable partitions of a topic, and the number of all partitions.

        Retries until a broker answers, ``delivery_timeout`` is over or the session gives up.
        """
        clock = self._session.clock
        deadline = clock.monotonic() + self._options.delivery_timeout_s
        attempts = 0
        while True:
            try:
                async with asyncio.timeout(deadline - clock.monotonic()):
                    return await self._counts(topic)
            except TimeoutError:
                late = f"no broker returned the partitions of {topic} in time"
                raise self._session.no_answer(late) from None
            except RaftlogError as error:
                attempts += 1
                pause = pause_s(error, attempts, self._session.rng)
                if self._session.gives_up(error) or clock.monotonic() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)

    def end_in_child(self) -> None:
        """Accept no records: the event loop that sends them is in the parent process."""
        self._is_forked = self._is_closed = True

    def _check_usable(self, topic: str | None) -> None:
        if self._is_forked:
            raise RuntimeError(FORKED)
        if self._is_closed:
            raise NotSent("the producer is closed")
        if self._incarnation is not None:
            raise RuntimeError(
                "this producer has a transactional id: send in a transaction, as in "
                "`with producer.transaction() as tx: tx.send(...)`"
            )
        if not (topic or self._topic):
            raise ValueError("topic: this producer was created without a topic; name a topic in each send")

    def _in_transaction(self, transaction: TransactionName) -> AsyncProducer:
        """Create the producer of the records of a transaction."""
        made = AsyncProducer(self._session, self._metadata, self._topic, self._options, transaction)
        self._of_transaction = made
        return made

    def _add_router(self, topic: str, writable_count: int, partition_count: int) -> None:
        router = Router(
            topic, buffer=self._buffer, rng=self._session.rng, partitioner=self._options.partitioner
        )
        self._widen(router, partition_count)
        router.set_queues(router.queues[:writable_count])
        self._routers[topic] = router

    def _widen(self, router: Router, partition_count: int) -> None:
        """Add queues up to ``partition_count``.

        A recommissioned partition keeps its queue and sequence numbers.
        """
        queues = router.known[:partition_count]
        for queue in queues[len(router.queues) :]:
            self._buffer.set_leaving(queue, is_leaving=False)
        for partition in range(len(queues), partition_count):
            queue = PartitionQueue(router.topic, partition)
            queue.wake = self._waker(queue)
            queues.append(queue)
        router.set_queues(queues)

    def _narrow(self, router: Router, partition_count: int) -> None:
        """Move records of decommissioned partitions to the first ``partition_count`` partitions."""
        for queue in self._narrowing(router).shrink(partition_count):
            self._sender(queue).leave()

    def _narrowing(self, router: Router) -> Narrowing:
        narrowing = self._narrowings.get(router.topic)
        if narrowing is None:
            narrowing = Narrowing(router, self._buffer, self._record_failed)
            self._narrowings[router.topic] = narrowing
            self._has_narrowed.add(router.topic)
        return narrowing

    def _turned_away(self, queue: PartitionQueue) -> None:
        view, router = self._metadata.cached(queue.topic), self._routers[queue.topic]
        known = len(router.queues) if view is None else view.writable_count
        if queue in router.queues:
            self._narrow(router, min(known, queue.partition))
        else:
            self._sender(queue).leave()

    def _left(self, queue: PartitionQueue, batches: list[Batch]) -> None:
        if self._buffer.is_closed:
            return  # senders may have ended: ``close`` fails the records instead
        targets = self._narrowing(self._routers[queue.topic]).left(queue, batches)
        if targets is None:
            return
        del self._narrowings[queue.topic]
        for target in targets:
            self._buffer.make_due(target)
            self._pump(target)
        self._let_waiting_go()

    def _record_failed(self, error: RaftlogError, count: int = 1) -> None:
        self._failed_count += count
        if len(self._errors) < ERRORS_KEPT_MAX:
            self._errors.append(error)

    def _sender(self, queue: PartitionQueue) -> PartitionSender:
        """The sender of a partition, made with its first batch."""
        sender = self._senders.get(queue)
        if sender is None:
            sender = self._senders[queue] = PartitionSender(
                queue,
                buffer=self._buffer,
                options=self._options,
                session=self._session,
                metadata=self._metadata,
                producer_ids=self._producer_ids,
                finish=self._finish,
                turned_away=self._turned_away,
                left=self._left,
                transaction=self._transaction,
            )
        return sender

    def _waiting(self) -> list[PartitionQueue]:
        """The partitions with batches that no sender has taken."""
        queues = (queue for router in self._routers.values() for queue in router.known)
        return [queue for queue in queues if queue.open is not None or queue.closed]

    def _pump(self, queue: PartitionQueue) -> None:
        """Send the batches of one partition that may be sent now."""
        self._sender(queue).pump()

    def _pump_all(self) -> None:
        """Send all batches, full or not."""
        for queue in self._waiting():
            self._buffer.make_due(queue)
            self._pump(queue)

    def _waker(self, queue: PartitionQueue) -> Callable[[float], None]:
        """A function that wakes the sender of a queue. Called under the buffer's lock, from any thread."""
        loop, thread, clock = self._loop, self._thread, self._session.clock

        def wake_here(at: float) -> None:
            if at:
                loop.call_later(max(at - clock.monotonic(), 0.0), self._pump, queue)
            else:
                loop.call_soon(self._pump, queue)

        def wake(at: float) -> None:
            if threading.get_ident() == thread:
                wake_here(at)
            else:
                loop.call_soon_threadsafe(wake_here, at)

        return wake

    def _finish(self, batch: Batch, outcome: Stored | RaftlogError) -> None:
        if isinstance(outcome, RaftlogError):
            outcome.add_note(f"{counted(len(batch.records), 'record')} of {batch.topic}/{batch.partition}")
            self._record_failed(outcome, len(batch.records))
        self._buffer.release(batch)
        batch.finish(outcome)
        if self._waiting_for_room and self._buffer.is_roomy:
            self._let_waiting_go()
        self._look_at_partitions(batch.topic)

    def _look_at_partitions(self, topic: str) -> None:
        """Use the present number of partitions.

        A transaction does not use recommissioned partitions again.
        """
        view, router = self._metadata.cached(topic), self._routers[topic]
        if view is None or topic in self._narrowings or view.is_suspect:
            return
        count = view.writable_count
        if count < len(router.queues):
            self._narrow(router, count)
        elif count > len(router.queues) and not (self._transaction and topic in self._has_narrowed):
            self._widen(router, count)

    def _let_waiting_go(self) -> None:
        waiting, self._waiting_for_room = self._waiting_for_room, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


def _incarnation(session: Session, options: ProducerOptions) -> Incarnation | None:
    if options.transactional_id is None:
        return None
    return Incarnation(
        session,
        options.transactional_id,
        timeout_ms=options.transaction_timeout_ms,
        limit_s=options.delivery_timeout_s,
        run_epoch=options.run_epoch,
    )
