"""Appends small produces that arrive together as one batch.

Decides: which requests share a batch, and how long a request waits for others. It does not wait while few
batches of its queue are in flight; otherwise it waits until one of these batches is answered, but never
longer than ``HOLD_S``. So a single request is not delayed, and the cost per request falls with load. Leaves
to others: decoding and placing records (``json_records``), and the append itself (the gateway).

A request is never split over batches, and gets its own offsets. The error of a shared append applies to all
its requests, except if it refuses a record: then both halves of the requests are sent again, until the
request with that record is alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Final

from msgspec.structs import replace

from broker.ports import GatewayPort
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import InvalidRequest
from raftlog.records.batch import Codec
from raftlog.records.builder import BatchBuilder, Record
from raftlog.types import Offset, TopicPartition

REQUEST_BYTES_MAX: Final = 16 << 10  # a larger request gets its own batch
BATCH_BYTES_MAX: Final = 128 << 10
IN_FLIGHT_MAX: Final = 2  # batches of one queue: one is transferred while the other is synced
HOLD_S: Final = 0.05  # a partition without a leader must not block its queue


Send = Callable[[Sequence[int], Sequence["Part"]], Coroutine[None, None, None]]


class Part:
    """The records of one request, and their outcome. ``target`` is the partition; it is set when the records
    are sent.
    """

    __slots__ = ("bytes_max", "now_ms", "receipt", "records", "size_bytes", "target")

    def __init__(self, records: Sequence[Record], *, size_bytes: int, bytes_max: int, now_ms: int) -> None:
        self.records = records
        self.size_bytes = size_bytes  # upper bound of the size of a batch with only these records
        self.bytes_max = bytes_max  # the limit of the topic
        self.now_ms = now_ms  # the timestamp of records without one
        self.target: TopicPartition | None = None
        self.receipt: asyncio.Future[AppendReceipt] = asyncio.get_running_loop().create_future()

    @property
    def may_share(self) -> bool:
        """True if the part is small enough to share a batch with other requests."""
        return self.size_bytes <= min(REQUEST_BYTES_MAX, self.bytes_max)


class RequestBatcher:
    """The queues of one broker for small produces: one per partition, and one per topic for records without a
    partition.
    """

    def __init__(self, gateway: GatewayPort, rng: Random, timeout_ms: int) -> None:
        self._gateway = gateway
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._queues: dict[tuple[str, int | None], _BatchQueue] = {}

    async def append(self, topic: str, partitions: Sequence[int], part: Part) -> AppendReceipt:
        """Append the records with ``acks=quorum`` to one of ``partitions``: to the only partition, or to a
        random one.
        """
        key = (topic, partitions[0] if len(partitions) == 1 else None)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _BatchQueue(
                partial(self._send, topic), partial(self._queues.pop, key)
            )
        queue.add(partitions, part)
        return await part.receipt

    async def _send(self, topic: str, partitions: Sequence[int], parts: Sequence[Part]) -> None:
        """Append all parts as one batch, and set the outcome of each part.

        If the contents are refused or cannot be encoded, the two halves of the parts are sent again
        separately. So an error of one request, even an unexpected one, does not affect others.
        """
        target = TopicPartition(topic, self._rng.choice(partitions))
        for part in parts:
            part.target = target
        batch: bytes | None = None
        try:
            batch = _batch_of(parts)
            receipt = await self._gateway.append(target, [batch], acks=QUORUM, timeout_ms=self._timeout_ms)
        except Exception as error:
            is_of_one = batch is None or isinstance(error, InvalidRequest)
            if len(parts) == 1 or not is_of_one:
                _fail(parts, error)
                return
            middle = len(parts) // 2
            for some in (parts[:middle], parts[middle:]):
                await self._send(topic, [target.partition], some)
        else:
            _share(parts, receipt)


class _BatchQueue:
    """The requests that wait for one target, in order of arrival."""

    def __init__(self, send: Send, on_idle: Callable[[], object]) -> None:
        self._send = send
        self._on_idle = on_idle
        self._partitions: Sequence[int] = ()
        self._waiting: deque[Part] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None

    def add(self, partitions: Sequence[int], part: Part) -> None:
        """Queue a part. It is sent at the end of this turn of the event loop, or once few enough batches are
        in flight.
        """
        self._partitions = partitions
        self._waiting.append(part)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            if len(self._sending) < IN_FLIGHT_MAX:
                self._timer = loop.call_soon(self._flush)
            else:
                self._timer = loop.call_later(HOLD_S, self._flush)

    def _flush(self) -> None:
        """Send at least one batch, and more while few enough batches are in flight."""
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting:
            task = loop.create_task(self._send(self._partitions, self._next_batch()))
            self._sending.add(task)
            task.add_done_callback(self._sent)
            if len(self._sending) >= IN_FLIGHT_MAX:
                break
        if self._waiting:
            self._timer = loop.call_later(HOLD_S, self._flush)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if task.cancelled():
            return  # the process is stopping
        if self._waiting and len(self._sending) < IN_FLIGHT_MAX:
            if self._timer is not None:
                self._timer.cancel()
            self._flush()
        elif not self._waiting and not self._sending:
            self._on_idle()

    def _next_batch(self) -> list[Part]:
        """Remove the oldest requests from the queue that fit into one batch together, and return them."""
        waiting = self._waiting
        parts = [waiting.popleft()]
        size_bytes = parts[0].size_bytes
        bytes_max = min(BATCH_BYTES_MAX, parts[0].bytes_max)
        while waiting and size_bytes + waiting[0].size_bytes <= min(bytes_max, waiting[0].bytes_max):
            size_bytes += waiting[0].size_bytes
            parts.append(waiting.popleft())
        return parts


def _batch_of(parts: Sequence[Part]) -> bytes:
    builder = BatchBuilder(Codec.NONE, lists_tags=True)
    for part in parts:
        builder.extend(part.records, timestamp_ms=part.now_ms)
    return builder.build()


def _share(parts: Sequence[Part], receipt: AppendReceipt) -> None:
    offset: int = receipt.base_offset
    for part in parts:
        count = len(part.records)
        if not part.receipt.done():
            part.receipt.set_result(replace(receipt, base_offset=Offset(offset), record_count=count))
        offset += count


def _fail(parts: Sequence[Part], error: Exception) -> None:
    for part in parts:
        if not part.receipt.done():
            part.receipt.set_exception(error)
