"""The state of all transactions of one partition of ``__transactions``: what its records add up to."""

from __future__ import annotations

from typing import Final

from raftlog.hosting.budget import Usage
from raftlog.hosting.keyed_records import KeyedState
from raftlog.hosting.names import Names
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

ROW_BYTES: Final = 1_000  # about the memory of a transactional id or a sink on each replica
PART_BYTES: Final = 120  # of a partition or a group in it, or of a transaction of a sink


class TransactionsState(KeyedState[Key, Value]):
    """The newest transaction of each transactional id, the newest batch of each sink, and keyed requests.

    By client: ``used`` counts the bytes of ids and sinks, ``keys`` the keyed requests, ``answers`` the
    bytes of their answers.
    """

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """No transactions."""
        self.transactions: dict[str, Transaction] = {}
        self.names, self.open_names = Names(), Names()  # of all, and of those that are not complete
        self.open: dict[str, Transaction] = {}  # those of them that are not complete
        self.sinks: dict[str, Sink] = {}
        self.requests: dict[bytes, KeyedRequest] = {}
        self.used, self.keys, self.answers = Usage(), Usage(), Usage()

    def copy(self) -> TransactionsState:
        """The same values, to be changed apart. A copy takes no snapshots."""
        copied = TransactionsState().without_snapshots()
        copied.transactions = dict(self.transactions)
        copied.open = dict(self.open)
        copied.names, copied.open_names = self.names.copy(), self.open_names.copy()
        copied.sinks = dict(self.sinks)
        copied.requests = dict(self.requests)
        copied.used, copied.keys, copied.answers = self.used.copy(), self.keys.copy(), self.answers.copy()
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """What one record says."""
        match key, value:
            case TransactionKey(name), _:
                self._count(name, self.transactions.get(name), value)
                self.names.put(name, is_there=value is not None)
                is_open = isinstance(value, Transaction) and value.state not in IDLE
                self.open_names.put(name, is_there=is_open)
            case SinkKey(name), _:
                self._count(name, self.sinks.get(name), value)
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
                if (before := self.requests.pop(digest, None)) is not None:
                    self._count_key(before, -1)
                if isinstance(value, KeyedRequest):
                    self.requests[digest] = value
                    self._count_key(value, 1)

    def growth(self, name: str, before: Value | None, after: Value | None) -> int:
        """How many bytes more the state has with another value of an id or a sink."""
        return _size_of(name, after) - _size_of(name, before)

    def _count(self, name: str, before: Value | None, after: Value | None) -> None:
        for value, sign in ((before, -1), (after, 1)):
            if value is not None:
                self.used.add(value.client, sign * _size_of(name, value))

    def _count_key(self, request: KeyedRequest, sign: int) -> None:
        self.keys.add(request.client, sign)
        self.answers.add(request.client, sign * len(request.answer or b""))


def _size_of(name: str, value: Value | None) -> int:
    """About the memory of a row."""
    match value:
        case Transaction(partitions=partitions, groups=groups):
            return ROW_BYTES + 2 * len(name) + PART_BYTES * (len(partitions) + len(groups))
        case Sink(handles=handles, retired=retired):
            return ROW_BYTES + 2 * len(name) + PART_BYTES * (len(handles) + len(retired))
    return 0
