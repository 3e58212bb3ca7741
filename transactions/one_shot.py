"""One-shot transactions: opened, written and committed by the broker that has the request.

A request without a transactional id uses a reserved id of this broker, which no other request uses at that
time. Such ids are reused, so requests leave no new ids and producers behind. The first use of an id after a
restart aborts the transaction that the former process left open. An id whose last outcome is unknown is not
reused while clients may ask for that outcome: until the broker restarts, or has ``IN_DOUBT_MAX`` newer ids of
the coordinator. So the number of ids stays bounded.

Decides: when the transaction is aborted, and whether an error is definite. Leaves to others: the records (the
caller), the coordinator's decisions (``decisions``, ``keyed_requests``).
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
GRACE_MS: Final = 1_000  # by which the time of a transaction exceeds the time of its request
IN_DOUBT_MAX: Final = 400  # ids of one coordinator that are kept because their last outcome is unknown
_log = logging.getLogger("raftlog.transactions")

Work = Callable[[Handle, int], Awaitable[bytes]]
"""Writes records in a transaction within a time in milliseconds; returns the answer of the request."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer of a committed request whose records are all visible."""

    answer: bytes
    is_replayed: bool  # whether an equal request was committed before


class OneShots:
    """Runs one-shot transactions of one broker."""

    def __init__(self, node_id: NodeId, service: TransactionService) -> None:
        self._node_id = node_id
        self._service = service
        # By the key that selects the coordinator: free ids, and ids with an unknown last outcome.
        self._free: dict[str, list[str]] = {}
        self._in_doubt: dict[str, deque[str]] = {}  # oldest first
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

        ``partitions`` are the partitions that ``work`` writes to. ``client`` is the client's address; a new
        transactional id counts for its limit. ``spread`` is any number, equal for equal requests without a
        transactional id. Raises ``CommitUnknown`` with ``committed`` None if the outcome is unknown; the
        error's ``transaction`` is the transaction. After any other error no record of this attempt becomes
        visible.
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
        """The answer of an equal committed request, or None if there was no such request.

        Raises the refusals of ``run``, and ``NoLeader`` and ``CommitUnknown`` if the answer is unknown.
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
                f"it is unknown whether transaction {handle} is committed: {error}",
                committed=None,
                transaction=str(handle),
            ) from error
        except RaftlogError:
            await self._abort(handle)
            raise
        assert isinstance(ended, Ended)
        if not ended.is_committed:
            raise TransactionAborted(
                f"transaction {handle} was aborted before its commit, by a request or its time limit; repeat "
                "the request",
                transaction=str(handle),
            )

    async def _abort(self, handle: Handle) -> None:
        """Abort a transaction now, so that readers need not wait until its time limit."""
        try:
            await self._service.ask(End(transaction=handle, is_commit=False), timeout_ms=ABORT_MS)
        except RaftlogError as error:
            _log.info("cannot abort transaction %s, its time limit will: %s", handle, error)

    async def _borrow(self, key: str, deadline: float) -> str:
        """Take a transactional id that selects the coordinator of ``key``, and that no other request uses."""
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
        """Whether the next transaction of an id can begin at once, without waiting for the last to end."""
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
        """Do not reuse an id for a while, because clients may ask for its last outcome."""
        if name.startswith(RESERVED):
            self._in_doubt.setdefault(name.partition(KEY_END)[0], deque()).append(name)


def _nothing_visible(error: Unknown, transaction: str) -> CommitUnknown:
    """The error for an attempt that was surely not committed: its transaction is aborted."""
    return CommitUnknown(
        f"{error}; no record is visible, and the transaction is aborted",
        committed=False,
        transaction=transaction,
    )


@cache
def _key_of(partition: int, count: int) -> str:
    """The first key that selects this partition of ``__transactions``."""
    names = (f"{RESERVED}one-shot-{number}" for number in itertools.count())
    return next(name for name in names if partition_of(name, count) == partition)
