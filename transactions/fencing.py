"""The answers to requests whose transaction is not the newest of the transactional id.

A transaction is the pair of producer id and producer epoch, and the epoch rises with each of them. So a late
or repeated request is recognised wherever it arrives, and is never taken for one of another transaction.
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
    """Whether this is the open transaction, or the next one. No transaction has the last epoch of all."""
    is_same = (handle.producer_id, handle.epoch) == (newest.producer_id, newest.epoch)
    return is_same and handle.epoch <= EPOCH_LAST


def outcome_of(handle: Handle, newest: Transaction) -> Outcome:
    """The outcome of an earlier transaction. Raises what its end is told where that is not known."""
    last = newest.last
    if last is not None and (handle.producer_id, handle.epoch) == (last.producer_id, last.epoch):
        return last
    if handle.producer_id == newest.producer_id and handle.epoch > newest.epoch:
        raise _ahead(handle, newest)
    first = last.epoch + 1 if last is not None and last.producer_id == newest.producer_id else 0
    if handle.producer_id == newest.producer_id and handle.epoch >= first:
        raise _fenced(handle, newest)  # nothing was ever written in it
    raise OutcomeForgotten(
        f"transaction {handle} ended before the last ones of this producer: how is forgotten; read "
        "what it wrote with isolation=committed"
    )


def next_epoch(epoch: int) -> int:
    """The epoch of the transaction after an epoch; -1 where the producer id has no epoch left."""
    return epoch + 1 if epoch < EPOCH_LAST else -1


def goes_on(after: Handle, found: Transaction) -> bool:
    """Whether nobody has opened the id since this transaction ended."""
    last = found.last
    is_last = last is not None and (last.producer_id, last.epoch) == (after.producer_id, after.epoch)
    return is_last and found.producer_id == after.producer_id and found.epoch == after.epoch + 1


def why_closed(handle: Handle, newest: Transaction) -> RaftlogError | None:
    """Why a transaction takes nothing more; None if it does. It may be the newest one, or an earlier one."""
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
            f"transaction {handle} is prepared or committed and takes nothing more; open another",
            current_epoch=newest.epoch,
        )
    return None


def check_takes_part(handle: Handle, newest: Transaction, group: str) -> None:
    """Raise why the group may keep no offsets of the transaction; nothing if it will be told the end."""
    if (error := why_closed(handle, newest)) is not None:
        raise error
    if group not in newest.groups:
        raise TransactionNotFound(f"group {group} does not take part in transaction {handle}")


def _ahead(handle: Handle, newest: Transaction) -> RaftlogError:
    """The error for a transaction later than the newest known one, which may still be ending."""
    if newest.state in ENDING and handle.epoch == newest.epoch + 1:
        return TransactionEnding(
            f"the transaction before {handle} is not complete yet; retry", retry_after_ms=20
        )
    return TransactionNotFound(f"transaction {handle} was never begun; open the transactional id again")


def _fenced(handle: Handle, newest: Transaction) -> ProducerFenced:
    return ProducerFenced(
        f"transaction {handle} is over: the transactional id has epoch {newest.epoch} by now, perhaps "
        "of another incarnation",
        current_epoch=newest.epoch,
    )


def _aborted(handle: Handle) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {handle} was aborted: its time ran out, or somebody aborted it; begin another"
    )
