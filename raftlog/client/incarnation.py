"""Opens and ends the transactions that one process has with a transactional id, one after another.

Decides: which transaction comes next, and when this incarnation is over. Leaves to others: the records
(``producer``), the errors that the user gets (``transaction``), every outcome (brokers).

The rules:

1.  The first transaction opens the transactional id, which fences every earlier incarnation. Each later
    transaction has the number that came with the outcome of its predecessor, and costs no request.
2.  A request to end a transaction may be repeated, to any broker: it is repeated until the outcome is known
    or the time limit is over.
3.  No transaction begins before the outcome of its predecessor is known: the request to end the predecessor
    is repeated first, unchanged.
4.  An incarnation that was fenced stays fenced: opening the id again would fence the process that has it now.
5.  The requests of one opening have the same name until an answer comes: a copy that arrives late does not
    fence a later incarnation.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Literal, NamedTuple

from raftlog.client.listing import ATTEMPT_TIMEOUT_S
from raftlog.client.receipts import own_copy
from raftlog.client.replies import Reply
from raftlog.client.session import Session
from raftlog.errors import (
    NotSent,
    OutcomeForgotten,
    ProducerFenced,
    RaftlogError,
    TransactionAborted,
    Unknown,
)
from raftlog.wire import transactions as wire
from raftlog.wire.bodies import Request
from raftlog.wire.groups import AddOffsets, OffsetCommit

Ended = Literal["committed", "aborted"]


class TransactionName(NamedTuple):
    """One transaction: its id, and the producer id and epoch in the headers of its batches."""

    id: str
    producer_id: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> TransactionName:
        """Parse the id of a transaction from a broker, such as ``copy-1@4711.0``."""
        producer_id, epoch = text.rpartition("@")[2].split(".")
        return cls(text, int(producer_id), int(epoch))


class Incarnation:
    """The transactions of one process with one transactional id.

    ``limit_s`` bounds one call with all its retries; ``run_epoch`` is the epoch of a sink's run.
    """

    def __init__(
        self, session: Session, name: str, *, timeout_ms: int, limit_s: float, run_epoch: int | None = None
    ) -> None:
        self._session = session
        self._name = name
        self._timeout_ms = timeout_ms
        self._limit_s = limit_s
        self._run_epoch = run_epoch
        self._newest: TransactionName | None = None  # the last transaction that has begun
        self._next: TransactionName | None = None  # the transaction that may begin without a request
        self._opening = ""  # the name of an opening without an answer
        self._is_open = False
        self._unanswered: bool | None = None  # whether the end without an outcome is a commit
        self._fenced: ProducerFenced | None = None
        self.is_closed = False

    async def begin(self) -> TransactionName:
        """Begin the next transaction. Raises ``ProducerFenced`` once another incarnation has the id."""
        self._check_free()
        await self.settle()
        self._check_free()  # another task may have been faster
        self._is_open = True
        try:
            self._newest, self._next = self._next or await self._open(), None
        except BaseException:
            self._is_open = False
            raise
        return self._newest

    async def open(self) -> None:
        """Open the transactional id now, which ends the open transaction of an earlier incarnation."""
        if self._newest is None and self._next is None:
            self._next = await self._open()

    @property
    def is_open(self) -> bool:
        """Whether a transaction may take records."""
        return self._is_open

    async def settle(self, limit_s: float | None = None) -> None:
        """Find the outcome of the previous transaction by repeating the request to end it, unchanged."""
        if self._newest is None or self._unanswered is None:
            return
        try:
            await self.end(self._newest, is_commit=self._unanswered, limit_s=limit_s)
        except OutcomeForgotten:
            self._unanswered = None  # opening the id after it is refused if another incarnation has it

    def begin_end(self, one: TransactionName, *, is_commit: bool) -> None:
        """Note that the transaction takes no more records, and has no outcome yet."""
        if one == self._newest:
            self._is_open = False
            self._unanswered = is_commit

    async def end(self, one: TransactionName, *, is_commit: bool, limit_s: float | None = None) -> Ended:
        """End a transaction, or ask for its outcome again.

        Raises the last error if the outcome stays unknown.
        """
        is_newest = one == self._newest
        is_first = is_newest and self._unanswered is None
        self.begin_end(one, is_commit=is_commit)
        operation = wire.COMMIT if is_commit else wire.ABORT
        try:
            reply = await self._end(operation.at(transaction=one.id), limit_s, is_first=is_first)
        except ProducerFenced as error:
            if is_newest:
                self._fenced = error
            raise
        if reply is None:
            return "aborted"
        ended = reply.read(wire.EndedTransaction)
        if is_newest:
            self._unanswered = None
            self._next = None if ended.next_id is None else TransactionName.parse(ended.next_id)
        return ended.outcome

    async def add_offsets(
        self,
        one: TransactionName,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        member_id: str | None,
        generation: int,
    ) -> None:
        """Add offsets of a group to the open transaction. Raises the error that fences the group member."""
        body = AddOffsets(
            group=group,
            offsets=[OffsetCommit(topic, number, offset) for (topic, number), offset in offsets.items()],
            member_id=member_id,
            generation=generation,
        )
        await self._ask(wire.ADD_OFFSETS.at(transaction=one.id), body)

    async def prepare(self, one: TransactionName, timeout_ms: int) -> None:
        """Prepare the transaction: it takes no more records, and commits or aborts with its sink's batch."""
        body = wire.PrepareTransaction(timeout_ms)
        await self._ask(wire.PREPARE.at(transaction=one.id), body)
        self._is_open = False
        self._unanswered = True  # brokers refuse to commit it alone as long as it is prepared

    async def why_aborted(self, one: TransactionName, error: RaftlogError) -> RaftlogError:
        """The error that says why the newest transaction was aborted: by another incarnation, or its timeout.

        Returns ``error`` if brokers do not say why.
        """
        try:
            newest = await self._session.call(
                wire.DESCRIBE, retry_timeout_s=self._limit_s, transaction=self._name
            )
        except RaftlogError:
            return error
        if _is_of_another(newest, one):
            self._fenced = ProducerFenced(
                f"another incarnation has opened {self._name}; transaction {one.id} is aborted",
                current_epoch=newest.producer_epoch,
            )
            return own_copy(self._fenced)
        return TransactionAborted(
            f"transaction {one.id} was aborted: its time of {self._timeout_ms / 1_000:g} s ran out, or an "
            "operator aborted it; begin another, and repeat its work"
        )

    def forget(self) -> None:
        """Let the next transaction open the transactional id again: brokers have forgotten the id."""
        self._newest = self._next = self._unanswered = None

    def _check_free(self) -> None:
        if self.is_closed:
            raise NotSent("the producer is closed")
        if self._fenced is not None:
            raise own_copy(self._fenced)
        if self._is_open:
            raise RuntimeError(
                f"{self._name} has a transaction open: end it first, or make another producer with another "
                "transactional_id"
            )

    async def _end(self, path: str, limit_s: float | None, *, is_first: bool) -> Reply | None:
        """End a transaction. None if brokers had forgotten it at the first request: it was not committed."""
        if not is_first:
            return await self._ask(path, limit_s=limit_s)
        clock = self._session.clock
        deadline = clock.monotonic() + (self._limit_s if limit_s is None else limit_s)
        try:
            return await self._ask(path, limit_s=limit_s, may_repeat=False)
        except OutcomeForgotten:
            return None
        except Unknown:
            return await self._ask(path, limit_s=max(deadline - clock.monotonic(), 0.0))

    async def _open(self) -> TransactionName:
        after = None if self._newest is None else self._newest.id
        self._opening = self._opening or uuid.uuid4().hex
        body = wire.OpenTransaction(self._name, self._timeout_ms, after, self._run_epoch, self._opening)
        try:
            opened = (await self._ask(wire.OPEN.at(), body)).read(wire.OpenedTransaction)
            self._opening = ""
        except ProducerFenced as error:
            self._fenced = error
            raise
        return TransactionName(opened.id, opened.producer_id, opened.producer_epoch)

    async def _ask(
        self, path: str, body: Request | None = None, *, limit_s: float | None = None, may_repeat: bool = True
    ) -> Reply:
        return await self._session.ask_any(
            "POST",
            path,
            body=body,
            may_repeat=may_repeat,
            retry_timeout_s=self._limit_s if limit_s is None else limit_s,
            attempt_timeout_s=ATTEMPT_TIMEOUT_S,
            refusal_settles=True,
        )


def _is_of_another(newest: wire.TransactionDescription, one: TransactionName) -> bool:
    """Whether another incarnation has opened the transactional id since the transaction ``one`` began.

    ``one`` is the newest transaction of this incarnation. Its end leaves the next producer epoch with the
    state ``complete``. Another incarnation begins a transaction with that epoch or with a later epoch.
    """
    found = newest.producer_id, newest.producer_epoch
    if found == (one.producer_id, one.epoch):
        return False
    return found != (one.producer_id, one.epoch + 1) or newest.state != "complete"
