"""What requests are told whose transaction is not, or no more, the open one of its transactional id."""

from __future__ import annotations

import pytest

from raftlog.errors import (
    OutcomeForgotten,
    ProducerFenced,
    RaftlogError,
    TransactionAborted,
    TransactionEnding,
    TransactionNotFound,
)
from transactions.fencing import ENDING, is_newest, outcome_of, why_closed
from transactions.records import EPOCH_LAST, Handle, Outcome, State, Transaction

NEWEST = 5  # the epoch of producer 7
LASTS = [None, *[Outcome(*last) for last in ((7, 2, True), (7, 2, False), (6, 3, True), (6, 3, False))]]


def told(handle: Handle, newest: Transaction) -> tuple[Outcome | type[RaftlogError], type[RaftlogError]]:
    """The fate of an earlier or later transaction, and what its batches are told."""
    last = newest.last
    if last is not None and (handle.producer_id, handle.epoch) == (last.producer_id, last.epoch):
        return last, ProducerFenced if last.is_committed else TransactionAborted
    if (handle.producer_id, handle.epoch) == (7, NEWEST + 1) and newest.state in ENDING:
        return TransactionEnding, TransactionEnding
    if handle.producer_id == 7 and handle.epoch > NEWEST:
        return TransactionNotFound, TransactionNotFound
    oldest_known = 3 if last is not None and last.producer_id == 7 else 0  # of the newest producer id
    is_known = handle.producer_id == 7 and handle.epoch >= oldest_known
    return ProducerFenced if is_known else OutcomeForgotten, ProducerFenced


# requirement: D3
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("last", LASTS)
def test_each_transaction_of_an_id_is_told_its_own_fate(state: State, last: Outcome | None) -> None:
    newest = Transaction(producer_id=7, epoch=NEWEST, state=state, last=last)
    for handle in [Handle("copy", producer, epoch) for producer in (5, 6, 7) for epoch in range(NEWEST + 3)]:
        if is_newest(handle, newest):
            assert (handle.producer_id, handle.epoch) == (7, NEWEST)
            continue
        fate, refusal = told(handle, newest)
        assert type(why_closed(handle, newest)) is refusal, (handle, newest)
        if isinstance(fate, Outcome):
            assert outcome_of(handle, newest) == fate
            continue
        with pytest.raises(fate):
            outcome_of(handle, newest)


# requirement: D3
def test_the_newest_transaction_takes_more_until_it_is_prepared_or_decided() -> None:
    refusals = {
        State.PREPARED: ProducerFenced,
        State.PREPARE_COMMIT: ProducerFenced,
        State.PREPARE_ABORT: TransactionAborted,
    }
    for state in State:
        newest = Transaction(producer_id=7, epoch=EPOCH_LAST, state=state)
        found = why_closed(Handle("copy", 7, EPOCH_LAST), newest)
        assert type(found) is refusals.get(state, type(None))
    above = Transaction(producer_id=7, epoch=EPOCH_LAST + 1, state=State.COMPLETE)
    assert not is_newest(Handle("copy", 7, EPOCH_LAST + 1), above), "no transaction has the last epoch of all"
