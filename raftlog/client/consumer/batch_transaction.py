"""Commits the offset of one batch and the records that the user sends in its transaction: both or neither.

Decides: what is committed together, and what a member that has lost its partitions does. Leaves to others:
transactions (``raftlog.client.transaction``), reading the records again (``core``). Runs on the client's
loop.
"""

from __future__ import annotations

from types import TracebackType

from raftlog.client import values
from raftlog.client.consumer.core import FENCED, ConsumerCore
from raftlog.client.logs import client_logger
from raftlog.client.messages import Message
from raftlog.client.producer import AsyncProducer
from raftlog.client.receipts import RecordFields
from raftlog.client.transaction import AsyncTransaction, Outcome
from raftlog.types import TopicPartition

_log = client_logger()


class BatchTransactionCore:
    """The transaction of a batch that was handed out in ``generation``.

    ``last`` is the last record of the batch.
    """

    def __init__(self, core: ConsumerCore, epoch: int, generation: int, last: Message) -> None:
        self._core = core
        self._epoch = epoch
        self._generation = generation
        self._target = TopicPartition(last.topic, last.partition)
        self._next_offset = last.offset + 1
        self._transaction: AsyncTransaction | None = None

    @property
    def transaction(self) -> AsyncTransaction:
        """The open or ended transaction."""
        assert self._transaction is not None, "the transaction has not begun: use it as a with block"
        return self._transaction

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the transaction; see ``AsyncTransaction.outcome``."""
        return self.transaction.outcome

    def producer(self) -> AsyncProducer:
        """The producer of the transaction's records. Raises an error if the transaction takes no records."""
        self.transaction.check_open()
        return self.transaction.records

    async def begin(self) -> None:
        """Begin a transaction, also after an abort.

        Raises ``RuntimeError`` if the batch is or may be committed.
        """
        if self._transaction is not None and self._transaction.outcome != "aborted":
            raise RuntimeError(
                f"the transaction of the batch is {self._transaction.outcome or 'open'}; take the next batch"
            )
        transaction = self._core.producer.transaction()
        self._core.note_begun(self._target, self._epoch)
        await transaction.__aenter__()
        self._transaction = transaction

    async def end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit the records and the offset after the batch, or abort.

        After an abort the batch is handed out again. A member that has lost the partition aborts, and raises
        nothing: another member gets the records.
        """
        transaction = self.transaction
        if error is None and transaction.outcome is None and not await self._add_offset():
            return
        await transaction.__aexit__(kind, error, traceback)
        if transaction.outcome == "committed":
            self._core.note_committed(self._target, self._epoch)

    async def _add_offset(self) -> bool:
        """Add the offset to the transaction. False if this member has lost the partition."""
        core, transaction = self._core, self.transaction
        offsets = {(self._target.topic, self._target.partition): self._next_offset}
        try:
            await transaction.add_offsets(
                core.options.group, offsets, member_id=core.member_id, generation=self._generation
            )
        except FENCED as error:
            _log.info("the transaction of records of %s is aborted: %s", self._target, error)
            await transaction.abort()
            return False
        except BaseException as error:
            await transaction.__aexit__(type(error), error, None)
            raise
        return True


class BatchRecords:
    """The transaction of a batch as users see it: the common part of both clients' classes."""

    def __init__(self, core: BatchTransactionCore) -> None:
        self._core = core

    @property
    def id(self) -> str:
        """The id of this transaction, which ``client.transactions.describe`` takes."""
        return self._core.transaction.id

    @property
    def outcome(self) -> Outcome | None:
        """``committed``, ``aborted``, or ``unknown`` after a commit without an answer.

        None while the transaction is open.
        """
        return self._core.outcome

    def _append(self, topic: str, value: values.Value, fields: RecordFields) -> AsyncProducer | None:
        """Append a record. Without room returns the producer: await its ``make_ready``, then append again."""
        producer = self._core.producer()
        placed = producer.append(
            value,
            fields.get("key"),
            topic,
            fields.get("partition"),
            fields.get("headers"),
            fields.get("tags", ()),
            fields.get("timestamp"),
            fields.get("on_ack"),
        )
        return producer if placed is None else None
