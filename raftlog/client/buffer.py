"""Holds records between ``send`` and the network: an open batch per partition, one bound in bytes for all.

Decides: when a batch is full or due, and whether there is room. Leaves to others: the partition of a record
(``producer``) and sending (``sender``).

``append`` may be called from any thread; it is the only function that takes a lock, and the only one
that runs for every record. The network side takes whole batches.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from raftlog.client.forks import mark_in_children
from raftlog.client.options import ProducerOptions
from raftlog.client.receipts import Batch, OnAck
from raftlog.clock import Clock
from raftlog.errors import NotSent, RecordTooLarge
from raftlog.records.batch import HEADER_BYTES
from raftlog.records.builder import Record

RECORD_OVERHEAD_BYTES = 32  # upper bound of lengths, deltas and counts around a record


class PartitionQueue:
    """The batches of one partition that no sender has taken: full batches, and at most one open batch."""

    __slots__ = ("closed", "is_leaving", "open", "partition", "topic", "wake")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.wake: Callable[[float], None] = _nobody  # with the time to take a batch; 0: now
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.is_leaving = False  # the partition takes no more records


class Buffer:
    """The records of a producer that have no outcome yet."""

    def __init__(
        self, options: ProducerOptions, clock: Clock, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.batch_bytes = max(options.batch_bytes - HEADER_BYTES, 1)  # of the records in a batch
        self._buffer_bytes = options.buffer_bytes
        self._linger_s = options.linger_s
        self._delivery_timeout_s = options.delivery_timeout_s
        self._clock = clock
        self._loop = loop
        self._lock = threading.Lock()
        self._used_bytes = 0
        self.is_closed = False
        self.is_full = False  # a record had no room, and since then too little room was released
        self.unfinished: dict[Batch, None] = {}
        self.closed_count = 0  # rises with every batch that became full
        mark_in_children(self)

    def end_in_child(self) -> None:
        """Mark unfinished batches: their outcomes never arrive, since the loop is in the parent process."""
        for batch in self.unfinished:
            batch.is_forked = True

    @property
    def is_roomy(self) -> bool:
        """Whether at most half of the buffer is used, so that callers of ``send`` need not wait for room."""
        return 2 * self._used_bytes <= self._buffer_bytes

    def append(
        self,
        queue: PartitionQueue,
        record: Record,
        size_bytes: int,
        on_ack: OnAck | None,
        is_named: bool = False,
        is_moved: bool = False,
    ) -> tuple[Batch, int] | None:
        """Append a record to its partition's open batch.

        ``None`` if there is no room, or the partition takes no more records. Returns the batch, and the
        number of the record in the batch. ``is_named``: the caller of ``send`` chose the partition.
        ``is_moved``: the record comes from another partition's batch, so the bound of the buffer does not
        apply.
        """
        with self._lock:
            batch = queue.open
            used_bytes = self._used_bytes + size_bytes
            if used_bytes > self._buffer_bytes and not is_moved:
                self._check_possible(size_bytes)
                self.is_full = True
                return None
            if queue.is_leaving:
                return None
            if batch is None or batch.size_bytes + size_bytes > self.batch_bytes:
                batch = self._open(queue)
            self._used_bytes = used_bytes
            batch.size_bytes += size_bytes
            records = batch.records
            index = len(records)
            records.append(record)
            if on_ack is not None:
                batch.call_back(index, on_ack)
            if is_named:
                batch.named.add(index)
        return batch, index

    def append_all(
        self,
        queue: PartitionQueue,
        records: Sequence[Record],
        sizes: Sequence[int],
        *,
        is_named: bool = False,
        fills_one: bool = False,
    ) -> int:
        """Append records in order while there is room; return the number of appended records.

        ``fills_one``: append to one batch only. The appended records have no receipts.
        """
        taken = 0
        with self._lock:
            if queue.is_leaving:
                return 0
            batch, used_bytes = queue.open, self._used_bytes
            for record, size_bytes in zip(records, sizes, strict=True):
                if used_bytes + size_bytes > self._buffer_bytes:
                    self.is_full = True
                    break
                if batch is None or batch.size_bytes + size_bytes > self.batch_bytes:
                    if taken and fills_one:
                        break
                    batch = self._open(queue)
                used_bytes += size_bytes
                batch.size_bytes += size_bytes
                if is_named:
                    batch.named.add(len(batch.records))
                batch.records.append(record)
                taken += 1
            self._used_bytes = used_bytes
            if not taken and sizes:
                self._check_possible(sizes[0])
        return taken

    def set_leaving(self, queue: PartitionQueue, *, is_leaving: bool) -> None:
        """Set whether the queue refuses further records. Records that are in the queue stay there."""
        with self._lock:
            queue.is_leaving = is_leaving

    def take(self, queue: PartitionQueue, now: float) -> Batch | None:
        """Close and return the next batch that is full or due."""
        with self._lock:
            if queue.closed:
                return queue.closed.popleft()
            batch = queue.open
            if batch is not None and batch.due <= now:
                queue.open = None
                return batch
        return None

    def close_open(self, queue: PartitionQueue, batch: Batch) -> None:
        """Close a batch that is nearly full, if it is still the open batch of its partition."""
        with self._lock:
            if queue.open is batch:
                queue.open = None
                self._close(queue, batch)

    def close(self) -> None:
        """Accept no more records, from any thread."""
        with self._lock:
            self.is_closed = True
            self._buffer_bytes = -1

    def release(self, batch: Batch) -> None:
        """Release the room of a batch that has its outcome."""
        with self._lock:
            self._used_bytes -= batch.size_bytes
            self.is_full = self.is_full and not self.is_roomy
            self.unfinished.pop(batch, None)

    def make_due(self, queue: PartitionQueue) -> None:
        """Make the open batch due now."""
        with self._lock:
            if queue.open is not None:
                queue.open.due = 0.0

    def _open(self, queue: PartitionQueue) -> Batch:
        now = self._clock.monotonic()
        if queue.open is not None:
            self._close(queue, queue.open)
        batch = queue.open = Batch(
            queue.topic,
            queue.partition,
            timestamp_ms=self._clock.wall_ms(),
            due=now + self._linger_s,
            deadline=now + self._delivery_timeout_s,
            lock=self._lock,
            loop=self._loop,
        )
        self.unfinished[batch] = None
        queue.wake(batch.due)
        return batch

    def _close(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.closed.append(batch)
        self.closed_count += 1
        queue.wake(0.0)

    def _check_possible(self, size_bytes: int) -> None:
        if self.is_closed:
            raise NotSent("the producer is closed")
        if size_bytes > self._buffer_bytes:
            raise RecordTooLarge(
                f"the record takes {size_bytes} bytes, the producer's buffer has {self._buffer_bytes}; "
                "raise buffer_bytes",
                limit_bytes=self._buffer_bytes,
            )


def _nobody(at: float) -> None:
    """Ignore the call: no sender takes batches from this queue yet."""
