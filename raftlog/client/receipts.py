"""Outcomes of sent records, and the objects that wait for them.

Decides: how the outcome of a batch becomes the outcome of each of its records. Leaves to others: filling
batches (``buffer``) and sending them (``sender``).

A batch has one outcome for all its records, so a record needs no future of its own: a ``PendingReceipt`` is a
reference to the batch and the record's number in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict, cast

from msgspec import Struct

from raftlog.client import values
from raftlog.client.forks import FORKED
from raftlog.client.logs import client_logger, is_client_thread
from raftlog.client.options import Duration, seconds
from raftlog.client.session import OTHER_LOOP
from raftlog.client.user_code import called
from raftlog.errors import RaftlogError
from raftlog.records.builder import Record

NO_OFFSET = -1
_logger = client_logger(__name__)


@dataclass(frozen=True, slots=True)
class Durability:
    """The durability of an acknowledged record: ``replicas`` is the number of replicas that fsynced it."""

    acks: str
    committed: bool
    fsynced: bool
    replicas: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The position of a stored record. With ``acks=0`` ``offset`` and ``timestamp_ms`` are unknown: -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    durability: Durability


@dataclass(frozen=True, slots=True)
class Stored:
    """A successful outcome of a batch.

    ``timestamp_ms`` is the leader's time, or ``None`` if the records keep their own timestamps.
    """

    base_offset: int
    timestamp_ms: int | None
    durability: Durability


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome of a batch of a decommissioned partition: each record moved to another batch, or failed."""

    parts: Sequence[tuple[Batch, int] | RaftlogError]


OnAck = Callable[[Receipt | None, RaftlogError | None], None]
"""A function that is called once with the receipt or the error, on the thread of the client's event loop.

An exception that the function raises is logged.
"""


class RecordFields(TypedDict, total=False):
    """The arguments of a send besides the value and the topic."""

    key: values.Key
    partition: int | None
    headers: values.Headers | None
    tags: Sequence[str]
    timestamp: datetime | int | None
    on_ack: OnAck | None


class Batch:
    """Records of one partition that are sent together and have a common outcome."""

    __slots__ = (
        "_callbacks",
        "_event",
        "_loop",
        "_stored_ms",
        "_thread_event",
        "_thread_lock",
        "deadline",
        "due",
        "is_forked",
        "named",
        "outcome",
        "partition",
        "records",
        "size_bytes",
        "timestamp_ms",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        timestamp_ms: int,
        due: float,
        deadline: float,
        lock: threading.Lock,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.timestamp_ms = timestamp_ms  # of records without a timestamp
        self.due = due  # time at which the batch is sent even if it is not full
        self.deadline = deadline  # time at which its records fail
        self.records: list[Record] = []
        self.size_bytes = 0
        self.outcome: Stored | Moved | RaftlogError | None = None
        self.is_forked = False  # the parent process has the outcome
        self.named: set[int] = set()  # records whose sender has named the partition
        self._callbacks: list[tuple[int, OnAck]] = []
        self._stored_ms: list[int] = []
        self._event: asyncio.Event | None = None
        self._thread_event: threading.Event | None = None
        self._thread_lock = lock
        self._loop = loop  # the loop that sets the outcome

    def call_back(self, index: int, on_ack: OnAck) -> None:
        """Register ``on_ack`` for one record. Called under the buffer's lock."""
        self._callbacks.append((index, on_ack))

    def finish(self, outcome: Stored | Moved | RaftlogError) -> None:
        """Set the outcome of all records. Called once, on the loop's thread."""
        if isinstance(outcome, Stored) and outcome.timestamp_ms is None:
            default_ms = self.timestamp_ms
            own = (record.timestamp_ms for record in self.records)
            self._stored_ms = [default_ms if own_ms is None else own_ms for own_ms in own]
        self.records = []  # a receipt that is kept must not keep the values of its batch
        with self._thread_lock:
            self.outcome = outcome
            waiting = self._thread_event
        if waiting is not None:
            waiting.set()
        if self._event is not None:
            self._event.set()
        for index, on_ack in self._callbacks:
            try:
                error = self.error(index)
                called("on_ack", on_ack, None if error else self.receipt(index), error)
            except Exception:  # the callbacks of the other records still run
                _logger.exception("on_ack raised an exception; the outcome of the record is unchanged")

    async def wait(self) -> None:
        """Wait for the outcome of the batch.

        Raises ``RuntimeError`` on another event loop than the client's.
        """
        if self.outcome is None:
            if self._loop is not None and asyncio.get_running_loop() is not self._loop:
                raise RuntimeError(OTHER_LOOP)
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()

    def wait_blocking(self, timeout_s: float | None) -> None:
        """Block until the batch has its outcome. Call this on another thread than the client's.

        Raises ``TimeoutError``, and ``RuntimeError`` in ``on_ack`` or in a process forked before the outcome.
        """
        if self.outcome is not None:
            return
        if self.is_forked:
            raise RuntimeError(FORKED)
        if is_client_thread():
            raise RuntimeError(
                "the client's own thread would wait for itself; wait for the record on another thread"
            )
        with self._thread_lock:
            if self.outcome is not None:
                return
            if self._thread_event is None:
                self._thread_event = threading.Event()
            waiting = self._thread_event
        if not waiting.wait(timeout_s):
            raise TimeoutError(
                f"{self.topic}/{self.partition}: no outcome within {timeout_s:g} s; it may still arrive"
            )

    def move(self, parts: Sequence[tuple[Batch, int] | RaftlogError]) -> None:
        """Note the batch to which each record moved; finish this batch once all records have outcomes."""
        targets = {part[0]: part[1] for part in parts if isinstance(part, tuple)}
        unfinished = len(targets)
        outcome = Moved(parts)

        def one_finished(receipt: Receipt | None, error: RaftlogError | None) -> None:
            nonlocal unfinished
            unfinished -= 1
            if not unfinished:
                self.finish(outcome)

        for target, index in targets.items():
            target.call_back(index, one_finished)
        if not targets:
            self.finish(outcome)

    def error(self, index: int) -> RaftlogError | None:
        """The error of one record, if it has failed."""
        outcome = self.outcome
        if not isinstance(outcome, Moved):
            return outcome if isinstance(outcome, RaftlogError) else None
        part = outcome.parts[index]
        return part if isinstance(part, RaftlogError) else part[0].error(part[1])

    def receipt(self, index: int) -> Receipt:
        """The receipt of one record. Raises the record's error."""
        outcome = self.outcome
        assert outcome is not None  # called only after the outcome
        if (error := self.error(index)) is not None:
            raise own_copy(error)
        if isinstance(outcome, Moved):
            batch, at = cast("tuple[Batch, int]", outcome.parts[index])
            return batch.receipt(at)
        assert isinstance(outcome, Stored)
        if outcome.base_offset < 0:
            return Receipt(self.topic, self.partition, NO_OFFSET, NO_OFFSET, outcome.durability)
        timestamp_ms = outcome.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._stored_ms[index]
        return Receipt(
            self.topic, self.partition, outcome.base_offset + index, timestamp_ms, outcome.durability
        )


class PendingReceipt(Struct, frozen=True, eq=False):
    """The future outcome of a record. Awaiting it returns the ``Receipt`` or raises the error."""

    _batch: Batch
    _index: int

    def __await__(self) -> Generator[object, None, Receipt]:
        if self._batch.outcome is None:
            yield from self._batch.wait().__await__()
        return self._batch.receipt(self._index)

    def done(self) -> bool:
        """True if the outcome is known."""
        return self._batch.outcome is not None

    def result(self) -> Receipt:
        """The receipt of a record that is done.

        Raises the record's error, or ``InvalidStateError`` before the outcome is known.
        """
        if self._batch.outcome is None:
            raise asyncio.InvalidStateError("the record is still pending; await this object")
        return self._batch.receipt(self._index)

    def exception(self) -> RaftlogError | None:
        """The error of a record that is done, if any."""
        if self._batch.outcome is None:
            raise asyncio.InvalidStateError("the record is still pending; await this object")
        return self._batch.error(self._index)


class BlockingPendingReceipt(Struct, frozen=True, eq=False):
    """The future outcome of a record, for threads: ``result`` waits, and returns the ``Receipt``."""

    _batch: Batch
    _index: int

    def done(self) -> bool:
        """True if the outcome is known."""
        return self._batch.outcome is not None

    def result(self, timeout: Duration | None = None) -> Receipt:
        """Wait, at most ``timeout`` (then ``TimeoutError``), and return the receipt."""
        self._batch.wait_blocking(_limit_s(timeout))
        return self._batch.receipt(self._index)

    def exception(self, timeout: Duration | None = None) -> RaftlogError | None:
        """Wait, at most ``timeout`` (then ``TimeoutError``), and return the error, if any."""
        self._batch.wait_blocking(_limit_s(timeout))
        return self._batch.error(self._index)


def _limit_s(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds("timeout", timeout)


def own_copy(error: RaftlogError) -> RaftlogError:
    """A copy of an error to raise: otherwise one object would collect the tracebacks of all callers."""
    copy = type(error)(str(error), **error.details)
    copy.__cause__ = error.__cause__
    return copy
