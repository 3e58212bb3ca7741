"""One transaction of a producer: its records, in any number of partitions, become visible together or never.

Decides: how a block ends, and which error it raises. Leaves to others: sending (``producer``), the number of
the transaction and its outcome (``incarnation``).

Each transaction has its own producer for its records, so no batch has records of two transactions, and
sequences begin at 0. Only the process of a transaction asks to commit it. So if this process has sent no
commit, the outcome is known without an answer of a broker: the transaction is aborted, by this process, by
the next incarnation or by the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack

from raftlog.client import values
from raftlog.client.incarnation import Incarnation, TransactionName
from raftlog.client.logs import client_logger
from raftlog.client.options import Duration, milliseconds
from raftlog.client.receipts import PendingReceipt, RecordFields, own_copy
from raftlog.errors import (
    CommitUnknown,
    NotSent,
    OutOfOrderSequence,
    ProducerFenced,
    RaftlogError,
    TransactionAborted,
    TransactionNotFound,
    Unknown,
)

if TYPE_CHECKING:
    from raftlog.client.producer import AsyncProducer
    from raftlog.records.builder import Record

Outcome = Literal["committed", "aborted", "prepared", "unknown"]
HURRIED_ABORT_S: Final = 4.0  # when a block is left by Ctrl-C or cancellation
_log = client_logger()


class AsyncTransaction:
    """A transaction of ``producer.transaction()``, used as an ``async with`` block of one task.

    Leaving the block commits, and returns once readers see all records. An exception in the block aborts the
    transaction. A record that cannot be stored aborts the transaction, too, and the block raises the error.
    """

    def __init__(
        self, incarnation: Incarnation, make_producer: Callable[[TransactionName], AsyncProducer]
    ) -> None:
        self._incarnation = incarnation
        self._make_producer = make_producer
        self._name: TransactionName | None = None
        self._producer: AsyncProducer | None = None
        self._outcome: Outcome | None = None

    async def __aenter__(self) -> Self:
        if self._name is not None:
            raise RuntimeError("a transaction begins once; call producer.transaction() for another")
        try:
            self._name = await self._incarnation.begin()
        except Unknown as error:
            raise NotSent(f"the transaction has not begun, and no record was sent: {error}") from error
        self._producer = self._make_producer(self._name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._outcome is not None:
            return
        if error is None:
            try:
                await self.commit()
            except asyncio.CancelledError:
                if self._outcome is None:
                    await self._abandon(HURRIED_ABORT_S)
                raise
        elif isinstance(error, RaftlogError) and self.records.failure is not None:
            raise await self._abandoned(self.records.failure) from error
        else:
            is_hurried = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
            await self._abandon(HURRIED_ABORT_S if is_hurried else None)

    @property
    def id(self) -> str:
        """The id of this transaction, which ``client.transactions.describe`` takes."""
        return self._begun.id

    @property
    def outcome(self) -> Outcome | None:
        """``committed``, ``aborted``, ``prepared``; ``unknown`` after a commit without an answer.

        None while the transaction is open.
        """
        return self._outcome

    @property
    def records(self) -> AsyncProducer:
        """The producer of the transaction's records. For the client only."""
        assert self._producer is not None, "the transaction has not begun: use it as a with block"
        return self._producer

    def check_open(self) -> None:
        """Raise the error of a failed record, or ``RuntimeError`` if the transaction is not open."""
        if self._producer is None or self._outcome is not None:
            raise RuntimeError(f"the transaction is {self._outcome or 'not begun'}; send within its block")
        if self._producer.failure is not None:
            raise own_copy(self._producer.failure)

    async def send(
        self, value: values.Value = None, *, topic: str | None = None, **fields: Unpack[RecordFields]
    ) -> PendingReceipt:
        """Add a record, as ``Producer.send`` does. Readers see it once the transaction is committed.

        Raises the error of an earlier record, if one has failed: the transaction can then only be aborted.
        """
        self.check_open()
        return await self.records.send(value, topic=topic, **fields)

    async def send_all(
        self, records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Add many records, as ``Producer.send_all`` does. Raises the error of an earlier failed record."""
        self.check_open()
        await self.records.send_all(records, topic=topic, partition=partition)

    async def add_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        member_id: str | None = None,
        generation: int = -1,
    ) -> None:
        """Commit these offsets of a group, by topic and partition, together with the records.

        A member of the group names itself and its generation. Raises ``MemberNotFound``, ``StaleGeneration``
        or ``RebalanceInProgress`` when it has lost its partitions: leave the block, which aborts.
        """
        self.check_open()
        try:
            await self._incarnation.add_offsets(self._begun, group, offsets, member_id, generation)
        except (ProducerFenced, TransactionAborted, TransactionNotFound, Unknown) as error:
            raise await self._abandoned(error) from error

    async def commit(self) -> None:
        """Commit the transaction; return once readers see all records. The end of the block calls this.

        If a record was not stored, even a record that another task sends meanwhile, aborts and raises the
        error. After ``CommitUnknown`` call this method again, to ask for the outcome.
        """
        if self._outcome == "committed":
            return
        if self._outcome in ("aborted", "prepared"):
            raise RuntimeError(f"the transaction is {self._outcome}")
        if self._outcome is None:
            await self._flush()
        if await self._end(is_commit=True) == "aborted":
            error = TransactionAborted(
                f"transaction {self.id} was aborted: its time ran out, or an operator aborted it; readers "
                "see none of its records"
            )
            raise await self._incarnation.why_aborted(self._begun, error)

    async def abort(self) -> None:
        """Abort the transaction.

        After ``CommitUnknown`` the transaction may be committed all the same: see ``outcome``.
        """
        if self._outcome == "committed":
            raise RuntimeError("the transaction is committed")
        if self._outcome is None:
            await self._abandon()
        elif self._outcome != "aborted":
            await self._end(is_commit=False)

    async def prepare(self, timeout: Duration = "1h") -> str:
        """Take no more records, and leave the commit to ``client.transactions.commit_batch``.

        Returns the ``id`` of the transaction. Any process may commit this id until ``timeout`` is over; then
        the transaction is aborted. The transactional id must consist of the key of a sink, ``~`` and a name.
        Until the batch is committed or aborted, the producer raises ``Conflict`` if it begins another
        transaction.
        """
        timeout_ms = milliseconds("timeout", timeout)
        self.check_open()
        await self._flush()
        await self._incarnation.prepare(self._begun, timeout_ms)
        self._outcome = "prepared"
        return self.id

    @property
    def _begun(self) -> TransactionName:
        assert self._name is not None, "the transaction has not begun: use it as a with block"
        return self._name

    async def _flush(self) -> None:
        """Accept no more records, and wait until all are stored.

        If a record fails, aborts and raises its error.
        """
        await self.records.flush()
        await self.records.close(0)  # a record that another task has sent meanwhile fails
        if self.records.failure is not None:
            raise await self._abandoned(self.records.failure)

    async def _end(self, *, is_commit: bool) -> Outcome:
        """End the transaction.

        Raises ``CommitUnknown`` without an answer, since an attempt may have succeeded.
        """
        self._outcome = "unknown"
        try:
            self._outcome = await self._incarnation.end(self._begun, is_commit=is_commit)
        except ProducerFenced:
            self._outcome = "aborted"
            raise
        except RaftlogError as error:
            if not error.retryable:
                raise
            raise CommitUnknown(
                f"no broker has answered whether transaction {self.id} is committed: {error}; call "
                "commit() again, or begin the next transaction, which asks first"
            ) from error
        return self._outcome

    async def _abandon(self, limit_s: float | None = None) -> None:
        """Abort the transaction, for which no commit was sent."""
        self._outcome = "aborted"
        self._incarnation.begin_end(self._begun, is_commit=False)  # also if this is cancelled now
        await self.records.close(0)
        try:
            await self._incarnation.end(self._begun, is_commit=False, limit_s=limit_s)
        except RaftlogError as error:
            _log.info("the abort of transaction %s was not confirmed: %s", self.id, error)

    async def _abandoned(self, failure: RaftlogError) -> RaftlogError:
        """Abort because of a record or an offset that was not stored. Returns the error to raise.

        No record of the transaction will ever be visible, so the outcome is never unknown.
        """
        await self._abandon()
        if isinstance(failure, ProducerFenced | TransactionAborted):
            return await self._incarnation.why_aborted(self._begun, own_copy(failure))
        if isinstance(failure, TransactionNotFound):
            self._incarnation.forget()
        if isinstance(failure, Unknown | OutOfOrderSequence):
            repeatable = TransactionAborted(
                f"transaction {self.id} is aborted, since not all its records were stored: {failure}; "
                "begin another transaction, and repeat the work"
            )
            repeatable.__cause__ = failure
            return repeatable
        error = own_copy(failure)
        error.add_note(f"transaction {self.id} is aborted: readers see none of its records")
        return error
