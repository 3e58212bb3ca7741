"""The blocking producer and its transactions: calls run asynchronous counterparts on the client's thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from raftlog.client import values
from raftlog.client.options import Duration
from raftlog.client.portal import SyncProxy, blocking
from raftlog.client.producer import AsyncProducer
from raftlog.client.receipts import BlockingPendingReceipt, OnAck, RecordFields
from raftlog.client.transaction import AsyncTransaction, Outcome
from raftlog.records.builder import Record


class Producer(SyncProxy[AsyncProducer]):
    """Sends records in batches, from any thread. Made by ``client.producer(...)``, used as a ``with`` block.

    Leaving the block waits until each record has its outcome, and raises an ``ExceptionGroup`` of all
    failures. With a ``transactional_id`` all records are sent in a ``transaction()``.
    """

    flush = blocking(AsyncProducer.flush)

    def __repr__(self) -> str:
        return f"<raftlog.Producer {self._core._described}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.call(lambda: self._core.__aexit__(kind, error, traceback))

    def close(self, timeout: Duration = "30s") -> None:
        """Send all records, for at most ``timeout``; then fail the unsent records.

        Closing twice is harmless.
        """
        self._portal.end(lambda: self._core.close(timeout))

    def transaction(self) -> Transaction:
        """The next transaction, as a ``with`` block. Raises ``RuntimeError`` while one is open."""
        return Transaction(self._core.transaction(), self._portal)

    def send(
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
    ) -> BlockingPendingReceipt:
        """Send a record; waits while the buffer is full. The receipt is ``result()`` of the returned
        object.
        """
        core = self._core
        while True:
            placed = core.append(value, key, topic, partition, headers, tags, timestamp, on_ack)
            if placed is not None:
                return BlockingPendingReceipt(*placed)
            self._portal.call(lambda: core.make_ready(topic))

    def send_all(
        self, records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Send many records without a receipt for each; waits while the buffer is full.

        Keys, values and header values of a ``Record`` are bytes or None. Failures are raised at the end of
        the producer's ``with`` block.
        """
        core, left = self._core, records
        while left := core.append_all(left, topic, partition):
            self._portal.call(lambda: core.make_ready(topic))


class Transaction(SyncProxy[AsyncTransaction]):
    """A transaction of ``producer.transaction()``, used as a ``with`` block. Any thread may call ``send``.

    Leaving the block commits, and returns once readers see all records. An exception in the block aborts the
    transaction. A record that cannot be stored aborts the transaction, too, and the block raises the error.
    """

    commit = blocking(AsyncTransaction.commit)
    abort = blocking(AsyncTransaction.abort)
    prepare = blocking(AsyncTransaction.prepare)
    add_offsets = blocking(AsyncTransaction.add_offsets)

    def __enter__(self) -> Self:
        self._portal.call(self._core.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.call(lambda: self._core.__aexit__(kind, error, traceback))

    @property
    def id(self) -> str:
        """The id of this transaction, which ``client.transactions.describe`` takes."""
        return self._core.id

    @property
    def outcome(self) -> Outcome | None:
        """``committed``, ``aborted``, ``prepared``; ``unknown`` after a commit without an answer.

        None while the transaction is open.
        """
        return self._core.outcome

    def send(
        self, value: values.Value = None, *, topic: str | None = None, **fields: Unpack[RecordFields]
    ) -> BlockingPendingReceipt:
        """Add a record, as ``Producer.send`` does. Readers see it once the transaction is committed.

        Raises the error of an earlier record, if one has failed: the transaction can then only be aborted.
        """
        self._core.check_open()
        return Producer(self._core.records, self._portal).send(value, topic=topic, **fields)

    def send_all(
        self, records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Add many records, as ``Producer.send_all`` does. Raises the error of an earlier failed record."""
        self._core.check_open()
        Producer(self._core.records, self._portal).send_all(records, topic=topic, partition=partition)
