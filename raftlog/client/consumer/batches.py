"""Batches that a consumer hands out: lists of records with a transaction, for both clients."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from raftlog.client import values
from raftlog.client.consumer.batch_transaction import BatchRecords, BatchTransactionCore
from raftlog.client.messages import Message
from raftlog.client.portal import Portal
from raftlog.client.receipts import RecordFields


class MessageBatch(list[Message]):
    """Records of one partition, in order."""

    def __init__(self, messages: Iterable[Message], core: BatchTransactionCore, portal: Portal) -> None:
        super().__init__(messages)
        self._transaction = BatchTransaction(core, portal)

    def transaction(self) -> BatchTransaction:
        """Handle the batch in a transaction, as a ``with`` block; for ``delivery="exactly_once"``.

        Leaving the block commits the records sent in the block and the offset after the batch, both or
        neither. After an abort the records are handed out again. If this member has lost the partition, the
        block aborts and raises nothing.
        """
        return self._transaction


class BatchTransaction(BatchRecords):
    """The transaction of a ``MessageBatch``."""

    def __init__(self, core: BatchTransactionCore, portal: Portal) -> None:
        super().__init__(core)
        self._portal = portal

    def __enter__(self) -> Self:
        self._portal.call(self._core.begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._portal.call(lambda: self._core.end(kind, error, traceback))

    def send(self, topic: str, value: values.Value = None, **fields: Unpack[RecordFields]) -> None:
        """Add a record, which readers see after the commit. Raises the error of an earlier failed record."""
        while (producer := self._append(topic, value, fields)) is not None:
            self._portal.call(partial(producer.make_ready, topic))


class AsyncMessageBatch(list[Message]):
    """Records of one partition, in order."""

    def __init__(self, messages: Iterable[Message], core: BatchTransactionCore, portal: Portal) -> None:
        super().__init__(messages)
        self._transaction = AsyncBatchTransaction(core, portal)

    def transaction(self) -> AsyncBatchTransaction:
        """Handle the batch in a transaction, as an ``async with`` block; see ``MessageBatch.transaction``."""
        return self._transaction


class AsyncBatchTransaction(BatchRecords):
    """The transaction of an ``AsyncMessageBatch``."""

    def __init__(self, core: BatchTransactionCore, portal: Portal) -> None:
        super().__init__(core)
        self._portal = portal

    async def __aenter__(self) -> Self:
        await self._portal.awaited(self._core.begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._portal.awaited(lambda: self._core.end(kind, error, traceback))

    async def send(self, topic: str, value: values.Value = None, **fields: Unpack[RecordFields]) -> None:
        """Add a record, which readers see after the commit. Raises the error of an earlier failed record."""
        while (producer := self._append(topic, value, fields)) is not None:
            await self._portal.awaited(partial(producer.make_ready, topic))
