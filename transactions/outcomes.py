"""What one coordinator knows of transactions that partitions find open: a pure decision.

A transaction is complete only when each of its partitions has acknowledged its marker. So a leader that
still finds it open has lost the marker, in an unsafe recovery, if no coordinator has it open.
"""

from __future__ import annotations

from collections.abc import Iterable

from transactions.records import Transaction
from transactions.requests import Known, TransactionNumber


def known(transactions: Iterable[Transaction], asked: Iterable[TransactionNumber]) -> Known:
    """Those that are still open, and those that are known to be committed."""
    wanted = set(asked)
    still_open: list[TransactionNumber] = []
    committed: list[TransactionNumber] = []
    for each in transactions:
        number, last = (each.producer_id, each.epoch), each.last
        if number in wanted:
            still_open.append(number)
        if last is not None and last.is_committed and (last.producer_id, last.epoch) in wanted:
            committed.append((last.producer_id, last.epoch))
    return Known(open=tuple(sorted(still_open)), committed=tuple(sorted(committed)))
