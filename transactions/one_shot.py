"""One-shot transactions: opened, written and committed by the broker that has the request.

Without a transactional id of its own, a request borrows one of this broker, for itself alone. Such an id is
used again and again, so requests leave no ids and no producers behind; and a broker that was restarted aborts
with the first use of an id what its predecessor left open. An id whose last outcome is not known is not used
again while the outcome may be asked for: until the broker restarts, or has ``IN_DOUBT_MAX`` newer ones of the
same coordinator. So requests without an outcome leave a bounded number of ids behind, too.

Decides: when the transaction is aborted, and whether an error is definite. Leaves to others: what is written
(the caller), the coordinator's decisions (``decisions``, ``keyed_requests``).
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from raftlog.errors import CommitUnknown, RaftlogError, TransactionAborted, TransactionNotFound, Unknown
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.types import NodeId
from transactions.batches import KEY_END, partition_of
from transactions.fencing import IDLE
from transactions.records import RESERVED, Handle, Participant
from transactions.requests import (
    AnsweredBefore,
    Claim,
    Described,
    End,
    Ended,
    Open,
    Opened,
    ReadAnswer,
    ReadTransaction,
)
from transactions.service import TransactionService

ABORT_MS: Final = 10_000
GRACE_MS: Final = 1_000  # the time of a request ends before that of its transaction
IN_DOUBT_MAX: Final = 400  # ids of one coordinator that are kept for the sake of their last outcome
_log = logging.getLogger("raftlog.transactions")

Work = Callable[[Handle, int], Awaitable[bytes]]
"""Writes into the transaction within so many milliseconds; gives the answer of the request."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The request is committed, and all of its records are visible."""

    answer: bytes
    is_replayed: bool  # it was committed before


class OneShots:
    """Runs one-shot transactions of one broker."""

    def __init__(self, node_id: NodeId, service: TransactionService) -> None:
        self._node_id = node_id
        self._service = service
        # By what selects the coordinator: ids that may be used, and those whose last outcome is not known.
        self._free: dict[str, list[str]] = {}
        self._in_doubt: dict[str, deque[str]] = {}  # the oldest first
        self._numbers = itertools.count()

    async def run(
        self,
        work: Work,
        *,
        partitions: Iterable[Participant],
        transactional_id: str | None,
        claim: Claim | None,
        spread: int,
        timeout_ms: int,
        client: str = "",
    ) -> Answered:
        """Carry out ``work`` in a transaction, unless an equal request was committed before.

        ``partitions`` are those that it writes to; the coordinator knows them from the beginning.
        ``client`` is the address of the client, to whom a new transactional id belongs.
        ``spread`` is any number: equal requests without a transactional id have the same one. Raises
        ``CommitUnknown`` with ``committed`` None where the outcome is not known; ``transaction`` has the id.
        After every other error nothing of this attempt is visible.
        """
        deadline = deadline_in(timeout_ms)
        name = transactional_id
        if name is None:
            count = await self._service.partition_count(timeout_ms)
            name = await self._borrow(_key_of(spread % count, count), deadline)
        request = Open(
            transactional_id=name,
            timeout_ms=timeout_ms + GRACE_MS,
            partitions=tuple(partitions),
            claim=claim,
            client="" if transactional_id is None else client,
        )
        try:
            answered = await self._run(work, request, deadline)
        except Unknown:
            self._keep(name)
            raise
        except Exception:
            self._give_back(name)
            raise
        self._give_back(name)
        return answered

    async def answer_before(
        self, claim: Claim, *, transactional_id: str | None, spread: int, timeout_ms: int
    ) -> bytes | None:
        """The answer of an equal request that is committed; None where there is none.

        Raises what ``run`` would refuse, and ``NoLeader`` and ``CommitUnknown`` where it is not known.
        """
        count = await self._service.confirmed_count(timeout_ms)
        if count is None:
            return None
        name = transactional_id or _key_of(spread % count, count)
        found = await self._service.ask(ReadAnswer(transactional_id=name, claim=claim), timeout_ms=timeout_ms)
        return found.answer if isinstance(found, AnsweredBefore) else None

    async def _run(self, work: Work, request: Open, deadline: float) -> Answered:
        name, is_keyed = request.transactional_id, request.claim is not None
        try:
            opened = await self._service.ask(request, timeout_ms=ms_until(deadline))
        except Unknown as error:
            if is_keyed:
                raise  # an equal request may have been committed before
            raise _nothing_visible(error, name) from error
        if isinstance(opened, AnsweredBefore):
            return Answered(opened.answer, is_replayed=True)
        assert isinstance(opened, Opened)
        handle = Handle(name, opened.producer_id, opened.epoch)
        try:
            answer = await work(handle, ms_until(deadline))
        except Unknown as error:
            await self._abort(handle)
            raise _nothing_visible(error, str(handle)) from error
        except Exception:
            await self._abort(handle)
            raise
        await self._commit(handle, answer if is_keyed else None, ms_until(deadline))
        return Answered(answer, is_replayed=False)

    async def _commit(self, handle: Handle, answer: bytes | None, timeout_ms: int) -> None:
        request = End(transaction=handle, is_commit=True, answer=answer)
        try:
            ended = await self._service.ask(request, timeout_ms=timeout_ms)
        except Unknown as error:
            raise CommitUnknown(
                f"whether transaction {handle} is committed is not known: {error}",
                committed=None,
                transaction=str(handle),
            ) from error
        except RaftlogError:
            await self._abort(handle)
            raise
        assert isinstance(ended, Ended)
        if not ended.is_committed:
            raise TransactionAborted(
                f"transaction {handle} was aborted before its commit: its time ran out, or somebody aborted "
                "it; repeat the request",
                transaction=str(handle),
            )

    async def _abort(self, handle: Handle) -> None:
        """At once, so that no reader waits for its time to run out, which aborts it anyway."""
        try:
            await self._service.ask(End(transaction=handle, is_commit=False), timeout_ms=ABORT_MS)
        except RaftlogError as error:
            _log.info("transaction %s is left to its time limit: %s", handle, error)

    async def _borrow(self, key: str, deadline: float) -> str:
        """A transactional id that a key's partition coordinates, and that no other request has."""
        free, in_doubt = self._free.get(key), self._in_doubt.setdefault(key, deque())
        if free:
            return free.pop()
        if len(in_doubt) >= IN_DOUBT_MAX:
            name, is_idle = in_doubt.popleft(), False
            try:
                is_idle = await self._is_idle(name, ms_until(deadline))
            finally:
                if not is_idle:
                    in_doubt.append(name)
            if is_idle:
                return name
        return f"{key}{KEY_END}{self._node_id}.{next(self._numbers)}"

    async def _is_idle(self, name: str, timeout_ms: int) -> bool:
        """Whether the next transaction of an id can begin at once, whatever partitions have no leader."""
        try:
            found = await self._service.ask(ReadTransaction(transactional_id=name), timeout_ms=timeout_ms)
        except TransactionNotFound:
            return True
        except RaftlogError:
            return False
        return isinstance(found, Described) and found.transaction.state in IDLE

    def _give_back(self, name: str) -> None:
        if name.startswith(RESERVED):
            self._free.setdefault(name.partition(KEY_END)[0], []).append(name)

    def _keep(self, name: str) -> None:
        """Put an id aside for a while: clients may ask for its last outcome."""
        if name.startswith(RESERVED):
            self._in_doubt.setdefault(name.partition(KEY_END)[0], deque()).append(name)


def _nothing_visible(error: Unknown, transaction: str) -> CommitUnknown:
    """The error that says that no record is visible: without a commit the transaction is aborted."""
    return CommitUnknown(
        f"{error}; nothing is visible, and its transaction is aborted",
        committed=False,
        transaction=transaction,
    )


@cache
def _key_of(partition: int, count: int) -> str:
    """The first name that selects a partition of ``__transactions``."""
    names = (f"{RESERVED}one-shot-{number}" for number in itertools.count())
    return next(name for name in names if partition_of(name, count) == partition)
