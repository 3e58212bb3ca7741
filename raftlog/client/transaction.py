"""A transaction of a producer: records of any partitions that become visible together, or never.

Decides: how a block ends, and what its user is told. Leaves to others: sending (``producer``), the number of
the transaction and its outcome (``incarnation``).

The records of a transaction have a producer of their own, so they share no batch with another transaction,
and their sequences begin at 0. Only its own process asks to commit a transaction. So without a commit that
was sent, the outcome is known without an answer: it is aborted by its end, by the next incarnation or by its
time.
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
    """Made by ``producer.transaction()``, used as an ``async with`` block. For one task.

    Leaving the block commits, and returns once readers see all records. Leaving it by an exception aborts. A
    record that cannot be stored aborts it, too, and the block raises why.
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
            raise NotSent(f"no transaction has begun, so nothing of it was sent: {error}") from error
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
        """The producer of its records. For the client only."""
        assert self._producer is not None, "the transaction has not begun: use it as a with block"
        return self._producer

    def check_open(self) -> None:
        """Raise unless records may be added: what has failed, or that the transaction has ended."""
        if self._producer is None or self._outcome is not None:
            raise RuntimeError(f"the transaction is {self._outcome or 'not begun'}; send within its block")
        if self._producer.failure is not None:
            raise own_copy(self._producer.failure)

    async def send(
        self, value: values.Value = None, *, topic: str | None = None, **fields: Unpack[RecordFields]
    ) -> PendingReceipt:
        """Add a record, as ``Producer.send`` does. Readers see it once the transaction is committed.

        Raises what an earlier record has failed with: the transaction can only be aborted then.
        """
        self.check_open()
        return await self.records.send(value, topic=topic, **fields)

    async def send_all(
        self, records: Sequence[Record], *, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Add many records, as ``Producer.send_all`` does. Raises what an earlier record has failed with."""
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
        """Commit, and return once readers see all records. The end of the block calls this.

        Aborts, and raises why, if a record was not stored, also one that another task sends meanwhile.
        After ``CommitUnknown`` it may be called again, to ask for the outcome again.
        """
        if self._outcome == "committed":
            return
        if self._outcome in ("aborted", "prepared"):
            raise RuntimeError(f"the transaction is {self._outcome}")
        if self._outcome is None:
            await self._flush()
        if await self._end(is_commit=True) == "aborted":
            error = TransactionAborted(
                f"transaction {self.id} was aborted: its time ran out, or somebody aborted it; nothing of it "
                "is visible"
            )
            raise await self._incarnation.why_aborted(self._begun, error)

    async def abort(self) -> None:
        """Abort. After ``CommitUnknown`` this aborts what is not committed; ``outcome`` says which it is."""
        if self._outcome == "committed":
            raise RuntimeError("the transaction is committed")
        if self._outcome is None:
            await self._abandon()
        elif self._outcome != "aborted":
            await self._end(is_commit=False)

    async def prepare(self, timeout: Duration = "1h") -> str:
        """Take no more records, and leave the commit to ``client.transactions.commit_batch``.

        Returns the ``id`` of the transaction, which any process may use until ``timeout`` is over; then the
        transaction is aborted. The transactional id is the key of a sink, ``~`` and a name. The producer
        begins its next transaction only after the batch is committed or aborted: it raises ``Conflict``.
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
        """All records are stored, and no more are accepted. Otherwise aborts, and raises why."""
        await self.records.flush()
        await self.records.close(0)  # a record that another task has sent meanwhile fails
        if self.records.failure is not None:
            raise await self._abandoned(self.records.failure)

    async def _end(self, *, is_commit: bool) -> Outcome:
        """Raises ``CommitUnknown`` without an answer, since an earlier attempt may have been carried out."""
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
                f"transaction {self.id} may be committed or not, no broker has said which: {error}; call "
                "commit() again, or begin the next transaction, which finds out first"
            ) from error
        return self._outcome

    async def _abandon(self, limit_s: float | None = None) -> None:
        """Abort what was never committed."""
        self._outcome = "aborted"
        self._incarnation.begin_end(self._begun, is_commit=False)  # also if this is cancelled now
        await self.records.close(0)
        try:
            await self._incarnation.end(self._begun, is_commit=False, limit_s=limit_s)
        except RaftlogError as error:
            _log.info("the abort of transaction %s was not confirmed: %s", self.id, error)

    async def _abandoned(self, failure: RaftlogError) -> RaftlogError:
        """Abort because of a record or an offset that was not stored; the error to raise.

        Nothing of the transaction will ever be visible, so this is never an unknown outcome.
        """
        await self._abandon()
        if isinstance(failure, ProducerFenced | TransactionAborted):
            return await self._incarnation.why_aborted(self._begun, own_copy(failure))
        if isinstance(failure, TransactionNotFound):
            self._incarnation.forget()
        if isinstance(failure, Unknown | OutOfOrderSequence):
            repeatable = TransactionAborted(
                f"transaction {self.id} is aborted, since not all of it was stored: {failure}; begin "
                "another, and repeat its work"
            )
            repeatable.__cause__ = failure
            return repeatable
        error = own_copy(failure)
        error.add_note(f"transaction {self.id} is aborted: nothing of it is visible")
        return error
