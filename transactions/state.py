"""The state of all transactions of one partition of ``__transactions``, derived from its records."""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from typing import Final

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

ROW_BYTES: Final = 1_200  # approximate memory of a transactional id or a sink on its leader
PARTITION_BYTES: Final = 24  # of a partition in such a row, without the name of its topic
NAME_BYTES: Final = (
    350  # of a group in such a row, or a transaction or run of a sink, without three times its name
)
PAIRS_MAX: Final = 20_000  # partitions whose pairs all transactions share


class TransactionsState(KeyedState[Key, Value]):
    """The newest transaction of each transactional id, the newest batch of each sink, and keyed requests.

    By client: ``used`` counts the bytes of ids and sinks, ``keys`` the bytes of keyed requests,
    ``open_parts`` the partitions in open transactions. ``idle`` and ``sinks`` are in the order of their last
    changes, oldest first, as far as the clocks of the leaders agree.
    """

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.clear()

    def clear(self) -> None:
        """Remove all transactions, sinks and requests."""
        self.transactions: dict[str, Transaction] = {}
        self.names, self.open_names = Names(), Names()  # of all transactions, and of the open ones
        self.open: dict[str, Transaction] = {}  # transactions that are not complete or empty
        self.idle: dict[str, Transaction] = {}  # complete or empty transactions
        self.began: list[tuple[int, str]] = []  # beginnings of open transactions, sorted
        self.producers: dict[
            int, str
        ] = {}  # transactional id by producer id of its newest or last transaction
        self.sinks: dict[str, Sink] = {}
        self.requests = KeptRequests()
        self.used, self.keys, self.open_parts = Usage(), Usage(), Usage()
        self.open_states = Usage()  # number of open transactions by state

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot, as ``KeyedState.restore`` does, and sort its rows by time instead of key."""
        super().restore(snapshot)
        self.idle = dict(sorted(self.idle.items(), key=_changed_ms))
        self.sinks = dict(sorted(self.sinks.items(), key=_changed_ms))
        self.requests.arrange()

    def copy(self) -> TransactionsState:
        """Copy the state, for independent changes. The copy makes no snapshots."""
        copied = TransactionsState().without_snapshots()
        copied.transactions = dict(self.transactions)
        copied.open, copied.idle = dict(self.open), dict(self.idle)
        copied.began, copied.producers = list(self.began), dict(self.producers)
        copied.names, copied.open_names = self.names.copy(), self.open_names.copy()
        copied.sinks = dict(self.sinks)
        copied.requests = self.requests.copy()
        copied.used, copied.keys = self.used.copy(), self.keys.copy()
        copied.open_parts, copied.open_states = self.open_parts.copy(), self.open_states.copy()
        return copied

    def take(self, key: Key, value: Value | None) -> None:
        """Apply one record."""
        match key:
            case TransactionKey(name):
                self._take_transaction(name, _shared(value) if isinstance(value, Transaction) else None)
            case SinkKey(name):
                self._count(name, self.sinks.pop(name, None), value)
                if isinstance(value, Sink):
                    self.sinks[name] = value
            case RequestKey(digest):
                for request, sign in ((self.requests.get(digest), -1), (value, 1)):
                    if isinstance(request, KeyedRequest):
                        self.keys.add(request.client, sign * size_of(request))

    def rows_of(self, key: Key) -> SnapshotRows | None:
        """The snapshot rows of a key (``KeyedState.rows_of``); requests have separate rows."""
        return self.requests.rows if isinstance(key, RequestKey) else super().rows_of(key)

    def kept_apart(self) -> tuple[SnapshotRows, ...]:
        """The snapshot rows of keyed requests (``KeyedState.kept_apart``)."""
        return (self.requests.rows,)

    def unused_since(self, client: str) -> int | None:
        """The time in milliseconds of the last change of the id or sink that has been idle longest.

        ``client`` limits the search to its ids and sinks; "" means all clients. None if nothing is idle.
        """
        firsts: list[Transaction | Sink] = []
        for rows in (self.idle.values(), self.sinks.values()):
            firsts += islice((each for each in rows if client in ("", each.client)), 1)
        return min((first.changed_ms for first in firsts), default=None)

    def of_producer(self, producer_id: int) -> Transaction | None:
        """The row of the id whose newest or last transaction has this producer id, or None."""
        name = self.producers.get(producer_id)
        return None if name is None else self.transactions[name]

    @property
    def oldest_began_ms(self) -> int | None:
        """The beginning of the oldest open transaction in milliseconds; None if no transaction is open."""
        return self.began[0][0] if self.began else None

    def growth(self, name: str, before: Value | None, after: Value | None) -> int:
        """The bytes by which the state grows if a value of an id or sink is replaced by ``after``."""
        return _size_of(name, after) - _size_of(name, before)

    def _take_transaction(self, name: str, after: Transaction | None) -> None:
        before = self.transactions.get(name)
        self._count(name, before, after)
        for rows in (self.open, self.idle):
            rows.pop(name, None)
        if before is not None:
            self._index(name, before, is_there=False)
        self.names.put(name, is_there=after is not None)
        self.open_names.put(name, is_there=after is not None and after.state not in IDLE)
        if after is None:
            self.transactions.pop(name, None)
        else:
            self.transactions[name] = after
            (self.idle if after.state in IDLE else self.open)[name] = after
            self._index(name, after, is_there=True)

    def _index(self, name: str, row: Transaction, *, is_there: bool) -> None:
        """Add a row to the indexes (``is_there``), or remove the row from the indexes."""
        for producer_id in (row.producer_id, row.producer_id if row.last is None else row.last.producer_id):
            if is_there:
                self.producers[producer_id] = name
            else:
                self.producers.pop(producer_id, None)
        if row.state in IDLE:
            return
        sign = 1 if is_there else -1
        self.open_states.add(row.state, sign)
        self.open_parts.add(row.client, sign * len(row.partitions))
        began = row.began_ms, name
        if is_there:
            insort(self.began, began)
        else:
            del self.began[bisect_left(self.began, began)]

    def _count(self, name: str, before: Value | None, after: Value | None) -> None:
        for value, sign in ((before, -1), (after, 1)):
            if value is not None:
                self.used.add(value.client, sign * _size_of(name, value))


def _changed_ms(row: tuple[str, Transaction | Sink]) -> int:
    return row[1].changed_ms


def _size_of(name: str, value: Value | None) -> int:
    """Approximate memory of a row of an id or sink in bytes."""
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
    """The transaction with shared objects for equal partitions: tasks of a sink write to equal partitions."""
    if not value.partitions:
        return value
    return msgspec.structs.replace(value, partitions=tuple(map(_pair, value.partitions)))


@lru_cache(PAIRS_MAX)
def _pair(pair: Participant) -> Participant:
    return sys.intern(pair[0]), pair[1]
