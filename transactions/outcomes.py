"""Finds the outcomes of transactions that are open in partitions, as one coordinator knows them. Pure.

A transaction is complete only when all its partitions have acknowledged its marker. So if a partition has an
open transaction that is not open at any coordinator, the partition has lost the transaction's marker in an
unsafe recovery.
"""

from __future__ import annotations

from collections.abc import Iterable

from transactions.requests import Known, TransactionNumber
from transactions.state import TransactionsState


def known(state: TransactionsState, asked: Iterable[TransactionNumber]) -> Known:
    """The transactions among ``asked`` that are still open, or known to be committed."""
    still_open: list[TransactionNumber] = []
    committed: list[TransactionNumber] = []
    for number in sorted(set(asked)):
        found = state.of_producer(number[0])
        if found is None:
            continue
        last = found.last
        if number == (found.producer_id, found.epoch):
            still_open.append(number)
        if last is not None and last.is_committed and number == (last.producer_id, last.epoch):
            committed.append(number)
    return Known(open=tuple(still_open), committed=tuple(committed))
