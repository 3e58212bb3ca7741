"""The outcomes of transactions that partitions find open, as far as one coordinator knows them. Pure.

A transaction is complete only when each of its partitions has acknowledged its marker. So a leader that
still finds it open has lost the marker, in an unsafe recovery, if no coordinator has it open.
"""

from __future__ import annotations

from collections.abc import Iterable

from transactions.requests import Known, TransactionNumber
from transactions.state import TransactionsState


def known(state: TransactionsState, asked: Iterable[TransactionNumber]) -> Known:
    """The asked transactions that are still open, or known to be committed."""
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
