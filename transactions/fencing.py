"""Answers to requests about transactions that are not the newest of their transactional id.

A producer id and a producer epoch identify a transaction, and the producer epoch rises with each transaction.
So a late or repeated request is recognised at any broker, and never affects another transaction.
"""

from __future__ import annotations

from raftlog.errors import (
    OutcomeForgotten,
    ProducerFenced,
    RaftlogError,
    TransactionAborted,
    TransactionEnding,
    TransactionNotFound,
)
from transactions.records import EPOCH_LAST, Handle, Outcome, State, Transaction

ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
IDLE = (State.EMPTY, State.COMPLETE)


def is_newest(handle: Handle, newest: Transaction) -> bool:
    """Whether the handle names the newest transaction.

    False for the highest epoch, which no transaction has.
    """
    is_same = (handle.producer_id, handle.epoch) == (newest.producer_id, newest.epoch)
    return is_same and handle.epoch <= EPOCH_LAST


def outcome_of(handle: Handle, newest: Transaction) -> Outcome:
    """The outcome of an earlier transaction. If it is not known any more, raises the error that says so."""
    last = newest.last
    if last is not None and (handle.producer_id, handle.epoch) == (last.producer_id, last.epoch):
        return last
    if handle.producer_id == newest.producer_id and handle.epoch > newest.epoch:
        raise _ahead(handle, newest)
    first = last.epoch + 1 if last is not None and last.producer_id == newest.producer_id else 0
    if handle.producer_id == newest.producer_id and handle.epoch >= first:
        raise _fenced(handle, newest)  # the transaction has no records
    raise OutcomeForgotten(
        f"the outcome of transaction {handle} was forgotten after later transactions of its producer; read "
        "its records with isolation=committed"
    )


def next_epoch(epoch: int) -> int:
    """The producer epoch of the next transaction; -1 if the producer id has no epoch left."""
    return epoch + 1 if epoch < EPOCH_LAST else -1


def goes_on(after: Handle, found: Transaction) -> bool:
    """Whether the transactional id was not opened again since the transaction ``after`` ended."""
    last = found.last
    is_last = last is not None and (last.producer_id, last.epoch) == (after.producer_id, after.epoch)
    return is_last and found.producer_id == after.producer_id and found.epoch == after.epoch + 1


def why_closed(handle: Handle, newest: Transaction) -> RaftlogError | None:
    """The error if a transaction accepts no further batches or offsets, else None."""
    if not is_newest(handle, newest):
        try:
            outcome = outcome_of(handle, newest)
        except OutcomeForgotten:
            return _fenced(handle, newest)
        except RaftlogError as error:
            return error
        return _fenced(handle, newest) if outcome.is_committed else _aborted(handle)
    if newest.state is State.PREPARE_ABORT:
        return _aborted(handle)
    if newest.state in (State.PREPARED, State.PREPARE_COMMIT):
        return ProducerFenced(
            f"transaction {handle} is prepared or committed, and accepts no further records; begin a new one",
            current_epoch=newest.epoch,
        )
    return None


def check_takes_part(handle: Handle, newest: Transaction, group: str) -> None:
    """Raise an error if the group may not store offsets of the transaction: it would not get the outcome."""
    if (error := why_closed(handle, newest)) is not None:
        raise error
    if group not in newest.groups:
        raise TransactionNotFound(
            f"group {group} has not joined transaction {handle}; send the offsets again"
        )


def _ahead(handle: Handle, newest: Transaction) -> RaftlogError:
    """The error for a transaction later than the newest known transaction, which may still be ending."""
    if newest.state in ENDING and handle.epoch == newest.epoch + 1:
        return TransactionEnding(
            f"the previous transaction of {handle} is not complete yet; retry", retry_after_ms=20
        )
    return TransactionNotFound(f"transaction {handle} was never begun; open the transactional id again")


def _fenced(handle: Handle, newest: Transaction) -> ProducerFenced:
    return ProducerFenced(
        f"transaction {handle} is fenced: the transactional id now has epoch {newest.epoch}, perhaps of "
        "another incarnation; stop this producer, or open the id again",
        current_epoch=newest.epoch,
    )


def _aborted(handle: Handle) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {handle} was aborted, by a request or its time limit; begin a new transaction"
    )
