"""Records between ``send`` and the network: one open batch a partition, and a bound on all of them.

Decides: when a batch is full, when it is due, and whether there is room. Leaves to others: which
partition a record belongs to (``producer``) and the sending (``sender``).

``append`` may be called from any thread; it is the one place where a lock is taken, and the one
that runs for every record. The network's side takes whole batches.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from raftlog.client.options import ProducerOptions
from raftlog.client.receipts import Batch, OnAck
from raftlog.clock import Clock
from raftlog.errors import NotSent, RecordTooLarge
from raftlog.records.batch import HEADER_BYTES
from raftlog.records.builder import Record

RECORD_OVERHEAD_BYTES = 32  # lengths, deltas and counts around a record take this at most


class Lane:
    """The batches of one partition that have not been taken: at most one open, then full ones."""

    __slots__ = ("closed", "open", "partition", "topic", "wake")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.wake: Callable[[float], None] = _nobody  # called with the time at which to take; 0 for now
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()


class Buffer:
    """All records of a producer that nobody has acknowledged."""

    def __init__(self, options: ProducerOptions, clock: Clock) -> None:
        self.batch_bytes = max(options.batch_bytes - HEADER_BYTES, 1)  # of the records in a batch
        self._buffer_bytes = options.buffer_bytes
        self._linger_s = options.linger_s
        self._delivery_timeout_s = options.delivery_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._used_bytes = 0
        self._is_closed = False
        self.unfinished: set[Batch] = set()
        self.closed_count = 0  # rises with every batch that became full

    @property
    def is_roomy(self) -> bool:
        """Whether so much was acknowledged that waiting for room is over."""
        return 2 * self._used_bytes <= self._buffer_bytes

    def append(
        self, lane: Lane, record: Record, size_bytes: int, on_ack: OnAck | None
    ) -> tuple[Batch, int] | None:
        """Put a record into its partition's open batch; ``None`` when there is no room."""
        with self._lock:
            batch = lane.open
            used_bytes = self._used_bytes + size_bytes
            if used_bytes > self._buffer_bytes:
                self._check_possible(size_bytes)
                return None
            if batch is None or batch.size_bytes + size_bytes > self.batch_bytes:
                batch = self._open(lane)
            self._used_bytes = used_bytes
            batch.size_bytes += size_bytes
            records = batch.records
            index = len(records)
            records.append(record)
            if on_ack is not None:
                batch.call_back(index, on_ack)
        return batch, index

    def take(self, lane: Lane, now: float) -> Batch | None:
        """The next batch that is full or due. It is then never appended to again."""
        with self._lock:
            if lane.closed:
                return lane.closed.popleft()
            batch = lane.open
            if batch is not None and batch.due <= now:
                lane.open = None
                return batch
        return None

    def close_open(self, lane: Lane, batch: Batch) -> None:
        """Let a batch leave that is as good as full, if it is still the open one."""
        with self._lock:
            if lane.open is batch:
                lane.open = None
                self._close(lane, batch)

    def close(self) -> None:
        """Take nothing more, from whichever thread it comes."""
        with self._lock:
            self._is_closed = True
            self._buffer_bytes = -1

    def release(self, batch: Batch) -> None:
        """Make room: the batch has its outcome."""
        with self._lock:
            self._used_bytes -= batch.size_bytes
            self.unfinished.discard(batch)

    def make_due(self, lane: Lane) -> None:
        """Let the open batch leave without waiting for more."""
        with self._lock:
            if lane.open is not None:
                lane.open.due = 0.0

    def _open(self, lane: Lane) -> Batch:
        now = self._clock.monotonic()
        if lane.open is not None:
            self._close(lane, lane.open)
        batch = lane.open = Batch(
            lane.topic,
            lane.partition,
            timestamp_ms=self._clock.wall_ms(),
            due=now + self._linger_s,
            deadline=now + self._delivery_timeout_s,
            lock=self._lock,
        )
        self.unfinished.add(batch)
        lane.wake(batch.due)
        return batch

    def _close(self, lane: Lane, batch: Batch) -> None:
        lane.closed.append(batch)
        self.closed_count += 1
        lane.wake(0.0)

    def _check_possible(self, size_bytes: int) -> None:
        if self._is_closed:
            raise NotSent("the producer is closed")
        if size_bytes > self._buffer_bytes:
            raise RecordTooLarge(
                f"the record takes {size_bytes} bytes, the producer's buffer has {self._buffer_bytes}; "
                "raise buffer_bytes",
                limit_bytes=self._buffer_bytes,
            )


def _nobody(at: float) -> None:
    """Nothing takes from this lane yet."""
