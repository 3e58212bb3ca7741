"""A leader's part in transactions: a transaction joins before its first batch, and its marker fences it.

Decides: when the coordinator is asked, and which batches a request may hold. Leaves to others: the state on
every replica (``transaction_table``, ``producer_table``), whether a transaction is open (``transactions``),
the log (``replica``).

Which transactions have joined belongs to one leader epoch, as ``InFlight`` does: the next leader asks again.
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
    """One transaction, as the headers of its batches have it."""

    producer_id: int
    epoch: int


JoinTransaction = Callable[[str, TransactionName, TopicPartition, int], Awaitable[None]]
"""Returns once the coordinator of a transactional id has recorded that the partition takes part.

The last argument is a time-out in milliseconds. Raises ``ProducerFenced``, ``TransactionAborted``,
``TransactionNotFound``, ``TransactionEnding``, ``NoLeader`` and ``CommitUnknown``; it may be repeated.
"""


class HeldBack:
    """For how long the oldest open transaction has held readers back, as this replica has seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._oldest: OpenTransaction | None = None
        self._since_s = 0.0

    def note(self, oldest: OpenTransaction | None) -> None:
        """Which one is the oldest now."""
        if oldest != self._oldest:
            self._oldest, self._since_s = oldest, self._clock.monotonic()

    @property
    def ms(self) -> int:
        """0 without an open transaction."""
        return 0 if self._oldest is None else round((self._clock.monotonic() - self._since_s) * 1000)


class Participant:
    """The leader's own state of transactions, beside the tables. All on the event loop's thread."""

    def __init__(self, table: TransactionTable, bytes_max: int = TRANSACTION_BYTES_MAX) -> None:
        self._table = table
        self._bytes_max = bytes_max
        self._joined: dict[TransactionName, int] = {}  # and the bytes that this leader has taken of it
        self._asking: set[TransactionName] = set()  # without a marker since the question

    def clear(self) -> None:
        """The leader epoch is over."""
        self._joined.clear()
        self._asking.clear()

    def ended(self, transaction: TransactionName) -> None:
        """Forget a transaction whose marker is written: a late batch does not count as joined."""
        self._joined.pop(transaction, None)
        self._asking.discard(transaction)

    def transaction_of(
        self, headers: Sequence[BatchHeader], transactional_id: str | None
    ) -> TransactionName | None:
        """The transaction of a produced body, None for plain batches. Raises ``InvalidRequest``."""
        if transactional_id is None:
            for header in headers:
                self._check_plain(header)
            return None
        names = {TransactionName(header.producer_id, header.producer_epoch) for header in headers}
        if len(names) != 1 or not all(header.is_transactional for header in headers):
            raise InvalidRequest(
                "the batches of a transaction have its producer id and epoch, and bit 4 of their attributes; "
                "send each transaction, and plain batches, in requests of their own",
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
        """Return once this partition takes part and has room for so many more bytes of the transaction.

        Raises what the coordinator refuses, and ``RecordTooLarge``. Repeated batches count again, and the
        next leader counts from zero: the bound keeps a transaction from filling a disk, no more.
        """
        if self._joined.get(transaction, 0) + size_bytes > self._bytes_max:
            raise RecordTooLarge(
                f"the transaction has more than {self._bytes_max} bytes in {target}: commit it, and write "
                "the rest in another",
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
                f"producer {header.producer_id} has a transaction open here: send the batch in it, or "
                "allocate another producer id",
                field="producer_id",
            )
