"""The state that every replica of a partition derives from its log.

Its parts are the producer table, the transaction table, the log start, the archived offset, the seal, and in
some internal topics a derived state (``derived``).

Decides: which parts a committed batch changes. Leaves to others: the records, which stay in the log, and the
rules of each part (``producer_table``, ``transaction_table``, ``log_start``, ``archived``, ``sealed``).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import chain, islice, repeat
from typing import Final

from partitions.replica.archived import ArchivedUpTo
from partitions.replica.derived import DerivedState
from partitions.replica.log_start import LogStart
from partitions.replica.producer_table import ProducerTable
from partitions.replica.sealed import Sealed
from partitions.replica.transaction_table import TransactionTable
from raftlog.errors import InvariantViolated
from raftlog.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, Buffer
from raftlog.state_machine import Restorable, restored_aside

SNAPSHOT_VERSION: Final = 6
_WITHOUT_SEAL: Final = 5  # first bytes of snapshots of earlier versions
_WITHOUT_ARCHIVED: Final = 4
_WITHOUT_LOG_START: Final = 3
_ONLY_PRODUCERS: Final = 2  # before transactions, for partitions without a derived state
_WITHOUT_TRANSACTIONS: Final = 0  # before transactions, with a derived state: the first byte of a length
PARTS: Final = 6
_LENGTH: Final = struct.Struct(">I")


class PartitionMachine:
    """The state machine of a partition's Raft group.

    Has no replies: offsets are known before a batch is applied.
    """

    def __init__(self, derived: DerivedState | None = None) -> None:
        self.producers = ProducerTable()
        self.transactions = TransactionTable()
        self.log_start = LogStart()
        self.archived = ArchivedUpTo()
        self.sealed = Sealed()
        self.derived = derived

    @property
    def has_derived(self) -> bool:
        """Whether the partition has a derived state."""
        return self.derived is not None

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch."""
        header = entry.header
        self.producers.apply(header)
        if header.attributes & TRANSACTIONAL_BIT:
            self.transactions.apply(entry)
        self.log_start.apply(entry)
        if header.attributes & CONTROL_BIT:
            self.archived.apply(entry)
            self.sealed.apply(entry)
        if self.derived is not None:
            self.derived.apply(entry)

    def snapshot(self) -> bytes:
        """Encode the state: equal bytes on every replica with an equal applied index."""
        parts = [
            self.producers.snapshot(),
            self.transactions.snapshot(),
            self.log_start.snapshot(),
            self.archived.snapshot(),
            self.sealed.snapshot(),
        ]
        pieces = [piece for part in parts for piece in (_LENGTH.pack(len(part)), part)]
        derived: Sequence[array[int] | Buffer] = ()
        if self.derived is not None:
            derived = self.derived.snapshot_pieces()
            pieces.append(_LENGTH.pack(sum(memoryview(piece).nbytes for piece in derived)))
        return b"".join((bytes([SNAPSHOT_VERSION]), *pieces, *derived))  # the only copy: state may be large

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the state in ``snapshot``; empty bytes stand for the initial state."""
        self.restoring(snapshot)()

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot without changing the state, as ``StateMachine.restoring`` requires."""
        *parts, derived = islice(chain(_parts_of(snapshot), repeat(b"")), PARTS)
        own: tuple[Restorable, ...] = (
            self.producers,
            self.transactions,
            self.log_start,
            self.archived,
            self.sealed,
        )
        restored = [restored_aside(part, data) for part, data in zip(own, parts, strict=True)]
        if self.derived is not None:
            restored.append(self.derived.restoring(derived))

        def become() -> None:
            for part in restored:
                part()

        return become


def _parts_of(snapshot: bytes) -> list[bytes]:
    if not snapshot:
        return []
    if snapshot[0] == _ONLY_PRODUCERS:
        return [snapshot]
    if snapshot[0] == _WITHOUT_TRANSACTIONS:
        end = _LENGTH.size + _LENGTH.unpack_from(snapshot)[0]
        return [snapshot[_LENGTH.size : end], b"", b"", b"", b"", snapshot[end:]]
    if not _WITHOUT_LOG_START <= snapshot[0] <= SNAPSHOT_VERSION:
        raise InvariantViolated(f"the snapshot of a partition has the unknown version {snapshot[0]}")
    parts, at = [], 1
    while at < len(snapshot):
        end = at + _LENGTH.size + _LENGTH.unpack_from(snapshot, at)[0]
        parts.append(snapshot[at + _LENGTH.size : end])
        at = end
    if snapshot[0] <= _WITHOUT_LOG_START:
        parts.insert(2, b"")
    if snapshot[0] <= _WITHOUT_ARCHIVED:
        parts.insert(3, b"")
    if snapshot[0] <= _WITHOUT_SEAL:
        parts.insert(4, b"")
    return parts
