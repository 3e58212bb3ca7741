"""Finds rows that were unused for a whole retention: keyed requests, transactional ids, sinks. Pure.

Decides: which rows are too old. Leaves to others: when to search, and how many rows to delete in one step
(``decisions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transactions import keyed_requests
from transactions.keyed_requests import LOOKED_AT_MAX
from transactions.outputs import Row
from transactions.records import Sink, SinkKey, Transaction, TransactionKey
from transactions.state import TransactionsState


def too_old(
    state: TransactionsState, trusted_ms: int | None, id_retention_ms: int, key_retention_ms: int
) -> Iterator[Row]:
    """Rows that delete old answers, ids and sinks; no rows without trusted time."""
    if trusted_ms is None:
        return
    yield from keyed_requests.expired(state, trusted_ms - key_retention_ms)
    oldest_ms = trusted_ms - id_retention_ms
    yield from ((TransactionKey(name), None) for name in _unused_since(oldest_ms, state.idle))
    yield from ((SinkKey(key), None) for key in _unused_since(oldest_ms, state.sinks))


def _unused_since(oldest_ms: int, rows: Mapping[str, Transaction | Sink]) -> Iterator[str]:
    """The names of rows that changed before ``oldest_ms``. The search stops after many younger rows in turn.

    The rows are in the order of their changes, as far as the clocks of the leaders agree.
    """
    young = 0
    for name, row in rows.items():
        if row.changed_ms < oldest_ms:
            yield name
            young = 0
        elif (young := young + 1) == LOOKED_AT_MAX:
            return
