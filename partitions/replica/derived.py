"""Interfaces of states derived from a partition's records, such as the consumer groups in ``__offsets``.

Every replica derives the state from committed batches and stores it in its snapshots. Only on the leader the
state receives a log to write to.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

from raftlog.records.batch import Batch, Buffer
from raftlog.types import TopicPartition


class DerivedLog(Protocol):
    """A partition's log in one leader epoch; the leader has applied all entries of earlier epochs."""

    @property
    def leader_epoch(self) -> int:
        """The term in which this replica leads."""

    @property
    def has_room(self) -> bool:
        """Whether batches that free no disk space may be appended (``RaftGroup.has_room``)."""

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append batches. The future is done once they are committed and applied on this replica.

        Raises, with nothing written: ``NotLeader``, ``NotEnoughReplicas``, ``Overloaded``, ``StorageFull``.
        The future raises ``CommitUnknown``.
        """

    async def confirm(self) -> None:
        """Return once it is proved that no other broker leads. Raises ``NotLeader`` and ``NoLeader``."""


class DerivedState(Protocol):
    """A deterministic state machine of a partition's records."""

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch, control batches included."""

    def snapshot(self) -> bytes:
        """Encode the state with a format version. Replicas with equal states give equal bytes."""

    def snapshot_pieces(self) -> Sequence[array[int] | Buffer]:
        """The bytes of ``snapshot`` in pieces, without copying the state; valid until the state changes."""

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot on any thread, as ``StateMachine.restoring`` requires."""

    def leads(self, log: DerivedLog | None) -> None:
        """Notify the state that this replica leads, so that it may write to ``log``; None: does not lead."""


Derive = Callable[[TopicPartition], DerivedState | None]
"""Function that makes the derived state of a partition as its replica opens; None for most partitions."""
