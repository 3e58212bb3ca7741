"""The state that every replica of a partition derives from its log: the producer table.

Decides: what a committed batch changes. Leaves to others: the records, which stay in the log and
are never parsed here, and the rules of the table (``producer_table``).
"""

from __future__ import annotations

from partitions.replica.producer_table import ProducerTable
from raftlog.records.batch import Batch


class PartitionMachine:
    """The state machine of a partition's Raft group. Its reply says nothing: offsets are known before."""

    def __init__(self) -> None:
        self.producers = ProducerTable()

    def apply(self, entry: Batch) -> None:
        """Take in one committed batch, by its header alone."""
        self.producers.apply(entry.header)

    def snapshot(self) -> bytes:
        """The whole state, in the same bytes on every replica that has applied as much."""
        return self.producers.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Become the state that ``snapshot`` describes; an empty one means the state at birth."""
        self.producers.restore(snapshot)
