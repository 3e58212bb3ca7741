"""Transactions at the leader of a partition: they join before their first batch, and end with a marker.

Decides: when the coordinator is asked, and which batches a request may have. Leaves to others: the state on
every replica (``transaction_table``, ``producer_table``), whether a transaction is open (``transactions``),
the log (``replica``).

The set of joined transactions belongs to one leader epoch, like ``InFlight``: the next leader asks the
coordinator again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from partitions.replica.transaction_table import OpenTransaction, TransactionTable
from raftlog.clock import Clock
from raftlog.errors import InvalidRequest, RecordTooLarge
from raftlog.records.batch import BatchHeader
from raftlog.types import TopicPartition
from raftlog.wire.limits import TRANSACTION_BYTES_MAX


class TransactionName(NamedTuple):
    """Identity of one transaction in the headers of its batches: producer id and producer epoch."""

    producer_id: int
    epoch: int


JoinTransaction = Callable[[str, TransactionName, TopicPartition, int], Awaitable[None]]
"""Asks the coordinator of a transactional id to record that the partition takes part in the transaction.

Returns once the coordinator has recorded it. The last argument is a time-out in milliseconds. Raises
``ProducerFenced``, ``TransactionAborted``, ``TransactionNotFound``, ``TransactionEnding``, ``NoLeader`` and
``CommitUnknown``. A call may be repeated.
"""


class HeldBack:
    """Measures how long the oldest open transaction has held back readers of committed records on this
    replica.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._oldest: OpenTransaction | None = None
        self._since_s = 0.0

    def note(self, oldest: OpenTransaction | None) -> None:
        """Note the oldest open transaction.

        If it is not the transaction noted before, the measured time restarts.
        """
        if oldest != self._oldest:
            self._oldest, self._since_s = oldest, self._clock.monotonic()

    @property
    def ms(self) -> int:
        """The time in milliseconds for which the noted transaction held back readers; 0 without an open
        transaction.
        """
        return 0 if self._oldest is None else round((self._clock.monotonic() - self._since_s) * 1000)


class Participant:
    """The leader's state of open transactions, which the replicated tables do not have.

    All on the event loop's thread.
    """

    def __init__(self, table: TransactionTable, bytes_max: int = TRANSACTION_BYTES_MAX) -> None:
        self._table = table
        self._bytes_max = bytes_max
        self._joined: dict[TransactionName, int] = {}  # bytes that this leader has appended of each
        self._asking: set[TransactionName] = set()  # joins in progress, without a marker since they began

    def clear(self) -> None:
        """Forget all transactions, because the leader epoch is over."""
        self._joined.clear()
        self._asking.clear()

    def ended(self, transaction: TransactionName) -> None:
        """Forget a transaction whose marker was appended, so that a late batch of the transaction must join
        again.
        """
        self._joined.pop(transaction, None)
        self._asking.discard(transaction)

    def transaction_of(
        self, headers: Sequence[BatchHeader], transactional_id: str | None
    ) -> TransactionName | None:
        """The transaction of a produced body, or None if no batch is transactional.

        Raises ``InvalidRequest``.
        """
        if transactional_id is None:
            for header in headers:
                self._check_plain(header)
            return None
        names = {TransactionName(header.producer_id, header.producer_epoch) for header in headers}
        if len(names) != 1 or not all(header.is_transactional for header in headers):
            raise InvalidRequest(
                "all batches of a transaction need its producer id and epoch, and bit 4 of their attributes; "
                "send each transaction, and plain batches, in separate requests",
                field="transactional_id",
            )
        return names.pop()

    async def join(
        self,
        ask: JoinTransaction,
        transactional_id: str,
        transaction: TransactionName,
        target: TopicPartition,
        timeout_ms: int,
        size_bytes: int,
    ) -> None:
        """Let this partition join a transaction, and add ``size_bytes`` to the transaction's bytes here.

        Raises the errors of the coordinator, and ``RecordTooLarge``. Repeated batches count again, and the
        next leader counts from zero: the limit only keeps a transaction from filling a disk.
        """
        if self._joined.get(transaction, 0) + size_bytes > self._bytes_max:
            raise RecordTooLarge(
                f"the transaction has more than {self._bytes_max} bytes in {target}: commit it, and write "
                "the other records in a new transaction",
                limit_bytes=self._bytes_max,
            )
        if transaction not in self._joined:
            self._asking.add(transaction)
            await ask(transactional_id, transaction, target, timeout_ms)
            if transaction in self._asking:
                self._asking.discard(transaction)
                self._joined[transaction] = 0
        if transaction in self._joined:
            self._joined[transaction] += size_bytes

    def _check_plain(self, header: BatchHeader) -> None:
        if header.has_producer and (
            self._table.is_open(header.producer_id)
            or TransactionName(header.producer_id, header.producer_epoch) in self._joined
        ):
            raise InvalidRequest(
                f"producer {header.producer_id} has an open transaction here: send the batch in this "
                "transaction, or allocate another producer id",
                field="producer_id",
            )
