"""Requests with an idempotency key: decides which requests are carried out, and the answers to repetitions.

A keyed request is carried out in a transaction. The request's record is written when the transaction is
opened. The record gets the answer in one batch of records with the decision to commit; an abort deletes the
record. So after any crash a committed request has an answer, and any other request can be carried out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from raftlog.errors import Conflict, IdempotencyInProgress, IdempotencyKeyReused
from transactions.fencing import ENDING, is_newest
from transactions.outputs import Row
from transactions.records import (
    Handle,
    KeyedRequest,
    RequestKey,
    Transaction,
)
from transactions.requests import Claim
from transactions.state import TransactionsState

LOOKED_AT_MAX: Final = 1_000  # consecutive young or running requests after which a search ends
RETRY_AFTER_MS: Final = 500


def held_by(claim: Claim, state: TransactionsState) -> KeyedRequest | None:
    """The record of an equal request that has an answer. None if the request of ``claim`` must be carried
    out.

    Raises ``IdempotencyKeyReused`` and ``IdempotencyInProgress``.
    """
    before = state.requests.get(claim.digest)
    if before is None or (before.answer is None and not _is_running(before, state)):
        return None
    if before.fingerprint != claim.fingerprint:
        raise IdempotencyKeyReused(
            "Idempotency-Key: another request was sent with this key; send each request with a different key"
        )
    if before.answer is not None:
        return before
    if before.attempt == claim.attempt:
        return None  # a repetition of this attempt, whose reply was lost
    raise IdempotencyInProgress(
        "Idempotency-Key: the first request with this key is still running; repeat until it is answered",
        retry_after_ms=RETRY_AFTER_MS,
    )


def waits_for(before: KeyedRequest, state: TransactionsState) -> str | None:
    """The transactional id of the request while not all partitions show its records; afterwards None."""
    name = before.transaction.transactional_id
    found = state.transactions.get(name)
    is_ending = found is not None and is_newest(before.transaction, found) and found.state in ENDING
    return name if is_ending else None


def claimed(claim: Claim, transaction: Handle, wall_ms: int) -> Row:
    """Make the row of a request whose transaction begins."""
    return RequestKey(claim.digest), KeyedRequest(
        fingerprint=claim.fingerprint,
        transaction=transaction,
        attempt=claim.attempt,
        changed_ms=wall_ms,
        client=claim.client,
    )


def decided(digest: bytes, answer: bytes | None, state: TransactionsState, wall_ms: int) -> Row:
    """Make the row to write with the decision about a request's transaction: the answer, or a deletion."""
    if answer is None:
        return RequestKey(digest), None
    before = state.requests.get(digest)
    assert before is not None, "a transaction has the digest of its request"
    return RequestKey(digest), KeyedRequest(
        fingerprint=before.fingerprint,
        transaction=before.transaction,
        attempt=before.attempt,
        changed_ms=wall_ms,
        answer=answer,
        client=before.client,
    )


def expired(state: TransactionsState, oldest_ms: int) -> Iterator[Row]:
    """Rows that delete requests that ended before ``oldest_ms``.

    Stops after many younger requests in turn.
    """
    young = 0
    for digest, request in state.requests.oldest():
        if request.changed_ms < oldest_ms and not _is_running(request, state):
            yield RequestKey(digest), None
            young = 0
        elif (young := young + 1) == LOOKED_AT_MAX:
            return


def oldest_ms(state: TransactionsState, client: str = "") -> int | None:
    """The time in milliseconds of the oldest request of a client ("": of any client), or None."""
    oldest = islice(state.requests.oldest(client), LOOKED_AT_MAX)
    return min((request.changed_ms for _, request in oldest), default=None)


def check_committable(handle: Handle, found: Transaction, answer: bytes | None) -> None:
    """Raise ``Conflict`` unless an answer is given exactly for the transaction of a keyed request."""
    if bool(found.request) != (answer is not None):
        raise Conflict(f"transaction {handle} belongs to one request, which commits it; wait, or abort it")


def _is_running(request: KeyedRequest, state: TransactionsState) -> bool:
    found = state.transactions.get(request.transaction.transactional_id)
    return found is not None and is_newest(request.transaction, found)
