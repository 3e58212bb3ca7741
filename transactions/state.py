"""The state of all transactions of one partition of ``__transactions``: what its records add up to."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec

from raftlog.hosting.budget import Usage
from raftlog.hosting.keyed_records import KeyedState
from raftlog.hosting.names import Names
from raftlog.hosting.snapshot_rows import SnapshotRows
from transactions.fencing import IDLE
from transactions.kept_requests import KeptRequests, size_of
from transactions.records import (
    KINDS,
    Key,
    KeyedRequest,
    Participant,
    RequestKey,
    Sink,
    SinkKey,
    Transaction,
    TransactionKey,
    Value,
)

ROW_BYTES: Final = 1_200  # about the memory of a transactional id or a sink on its leader
PARTITION_BYTES: Final = 24  # of a partition in it, besides the name of its topic in the row
NAME_BYTES: Final = (
    350  # of a group in it, or of a transaction or a run of a sink, besides three times its name
)
PAIRS_MAX: Final = 20_000  # partitions that are there once for all transactions


class TransactionsState(KeyedState[Key, Value]):
    """The newest transaction of each transactional id, the newest batch of each sink, and keyed requests.

    By client: ``used`` counts the bytes of ids and sinks, ``keys`` those of keyed requests.
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
        self.requests = KeptRequests()
        self.used, self.keys = Usage(), Usage()

    def restore(self, snapshot: bytes) -> None:
        """See ``KeyedState.restore``: a snapshot has requests in the order of their digests."""
        super().restore(snapshot)
        self.requests.is_in_order = False

    def copy(self) -> TransactionsState:
        """The same values, to be changed apart. A copy takes no snapshots."""
        copied = TransactionsState().without_snapshots()
        copied.transactions = dict(self.transactions)
        copied.open = dict(self.open)
        copied.names, copied.open_names = self.names.copy(), self.open_names.copy()
        copied.sinks = dict(self.sinks)
        copied.requests = self.requests.copy()
        copied.used, copied.keys = self.used.copy(), self.keys.copy()
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
                self.transactions[name] = value = _shared(value)
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
                for request, sign in ((self.requests.get(digest), -1), (value, 1)):
                    if isinstance(request, KeyedRequest):
                        self.keys.add(request.client, sign * size_of(request))

    def rows_of(self, key: Key) -> SnapshotRows | None:
        """See ``KeyedState.rows_of``: those of requests are all that is kept of them."""
        return self.requests.rows if isinstance(key, RequestKey) else super().rows_of(key)

    def kept_apart(self) -> tuple[SnapshotRows, ...]:
        """See ``KeyedState.kept_apart``."""
        return (self.requests.rows,)

    def unused_since(self, client: str) -> Iterator[int]:
        """When each idle id and each sink was last used: of all, or of one client."""
        rows: Iterator[Transaction | Sink] = chain[Any](self.transactions.values(), self.sinks.values())
        for found in rows:
            is_idle = isinstance(found, Sink) or found.state in IDLE
            if is_idle and client in ("", found.client):
                yield found.changed_ms

    def growth(self, name: str, before: Value | None, after: Value | None) -> int:
        """How many bytes more the state has with another value of an id or a sink."""
        return _size_of(name, after) - _size_of(name, before)

    def _count(self, name: str, before: Value | None, after: Value | None) -> None:
        for value, sign in ((before, -1), (after, 1)):
            if value is not None:
                self.used.add(value.client, sign * _size_of(name, value))


def _size_of(name: str, value: Value | None) -> int:
    """About the memory of a row."""
    match value:
        case Transaction(partitions=partitions, groups=groups):
            topics = sum(len(topic) for topic, _ in partitions)
            parts = topics + PARTITION_BYTES * len(partitions) + _size_of_names(groups)
        case Sink(handles=handles, retired=retired):
            parts = _size_of_names(retired) + _size_of_names([one.transactional_id for one in handles])
        case _:
            return 0
    return ROW_BYTES + 2 * len(name) + parts


def _size_of_names(names: Collection[str]) -> int:
    return NAME_BYTES * len(names) + 3 * sum(map(len, names))


def _shared(value: Transaction) -> Transaction:
    """The transaction with the pairs of others: tasks of a sink write to the same partitions."""
    if not value.partitions:
        return value
    return msgspec.structs.replace(value, partitions=tuple(map(_pair, value.partitions)))


@lru_cache(PAIRS_MAX)
def _pair(pair: Participant) -> Participant:
    return sys.intern(pair[0]), pair[1]
