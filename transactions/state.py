"""The state of all transactions of one partition of ``__transactions``: what its records add up to."""

from __future__ import annotations

from raftlog.hosting.keyed_records import KeyedState
from transactions.fencing import IDLE
from transactions.records import (
    KINDS,
    Key,
    KeyedRequest,
    RequestKey,
    Sink,
    SinkKey,
    Transaction,
    TransactionKey,
    Value,
)


class TransactionsState(KeyedState[Key, Value]):
    """The newest transaction of each transactional id, the newest batch of each sink, and keyed requests."""

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """No transactions."""
        self.transactions: dict[str, Transaction] = {}
        self.open: dict[str, Transaction] = {}  # those of them that are not complete
        self.sinks: dict[str, Sink] = {}
        self.requests: dict[bytes, KeyedRequest] = {}
        self.answer_bytes = 0  # of all keyed requests

    def copy(self) -> TransactionsState:
        """The same values, to be changed apart. A copy takes no snapshots."""
        copied = TransactionsState().without_snapshots()
        copied.transactions = dict(self.transactions)
        copied.open = dict(self.open)
        copied.sinks = dict(self.sinks)
        copied.requests = dict(self.requests)
        copied.answer_bytes = self.answer_bytes
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """What one record says."""
        match key, value:
            case TransactionKey(name), Transaction():
                self.transactions[name] = value
                self.open.pop(name, None)
                if value.state not in IDLE:
                    self.open[name] = value
            case TransactionKey(name), _:
                self.transactions.pop(name, None)
                self.open.pop(name, None)
            case SinkKey(name), Sink():
                self.sinks[name] = value
            case SinkKey(name), _:
                self.sinks.pop(name, None)
            case RequestKey(digest), _:
                before = self.requests.pop(digest, None)
                self.answer_bytes -= _answer_bytes(before)
                if isinstance(value, KeyedRequest):
                    self.requests[digest] = value
                    self.answer_bytes += _answer_bytes(value)


def _answer_bytes(request: KeyedRequest | None) -> int:
    return 0 if request is None else len(request.answer or b"")
