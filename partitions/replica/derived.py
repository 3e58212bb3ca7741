"""State that the records of a partition add up to, such as the consumer groups in ``__offsets``.

Every replica derives it from committed batches; it is part of the replica's snapshots. The leader alone is
given the log to write to. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

from raftlog.records.batch import Batch, Buffer
from raftlog.types import TopicPartition


class DerivedLog(Protocol):
    """A partition's log in one epoch of its leader, which has applied all that earlier ones committed."""

    @property
    def leader_epoch(self) -> int:
        """The term of this leader."""

    @property
    def has_room(self) -> bool:
        """Whether batches that free no room may be appended; see ``RaftGroup.has_room``."""

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append; done once the batches are committed and applied here. See ``RaftGroup.propose``.

        Raises, with nothing written: ``NotLeader``, ``NotEnoughReplicas``, ``Overloaded``, ``StorageFull``.
        The future raises ``CommitUnknown``.
        """

    async def confirm(self) -> None:
        """Return once it is proved that no other broker leads. Raises ``NotLeader`` and ``NoLeader``."""


class DerivedState(Protocol):
    """A state machine of a partition's records; deterministic as any."""

    def apply(self, entry: Batch) -> None:
        """Take in one committed batch, control batches too."""

    def snapshot(self) -> bytes:
        """The serialized state with a format version: equal bytes on every replica."""

    def snapshot_pieces(self) -> Sequence[array[int] | Buffer]:
        """The bytes of ``snapshot`` in pieces, no copies. They hold until the next change of the state."""

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot, on any thread; see ``StateMachine.restoring``."""

    def leads(self, log: DerivedLog | None) -> None:
        """Notify the state that this replica leads from now on, or no longer (None)."""


Derive = Callable[[TopicPartition], DerivedState | None]
"""The derived state of a partition's replica that is being opened; None for most."""
