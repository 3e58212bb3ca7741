"""The state that every replica of a partition derives from its log.

That is the producer table, and in some topics what the records mean (``derived``). Decides: what a committed
batch changes. Leaves to others: the records, which stay in the log, and the rules of the table
(``producer_table``).
"""

from __future__ import annotations

import struct
from typing import Final

from partitions.replica.derived import DerivedState
from partitions.replica.producer_table import ProducerTable
from raftlog.records.batch import Batch

_LENGTH: Final = struct.Struct(">I")


class PartitionMachine:
    """The state machine of a partition's Raft group. Its reply says nothing: offsets are known before."""

    def __init__(self, derived: DerivedState | None = None) -> None:
        self.producers = ProducerTable()
        self._derived = derived

    def apply(self, entry: Batch) -> None:
        """Take in one committed batch."""
        self.producers.apply(entry.header)
        if self._derived is not None:
            self._derived.apply(entry)

    def snapshot(self) -> bytes:
        """The whole state, in the same bytes on every replica that has applied as much."""
        producers = self.producers.snapshot()
        if self._derived is None:
            return producers
        return _LENGTH.pack(len(producers)) + producers + self._derived.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Become the state that ``snapshot`` describes; an empty one means the initial state."""
        if self._derived is None:
            self.producers.restore(snapshot)
            return
        at = _LENGTH.size + (_LENGTH.unpack_from(snapshot)[0] if snapshot else 0)
        self.producers.restore(snapshot[_LENGTH.size : at])
        self._derived.restore(snapshot[at:])
