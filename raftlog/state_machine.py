"""What a Raft group replicates: the contract between the driver and the application."""

from __future__ import annotations

from typing import Protocol, TypeVar

from raftlog.records.batch import Batch

Reply_co = TypeVar("Reply_co", covariant=True)


class StateMachine(Protocol[Reply_co]):
    """Deterministic: the same batches in the same order give the same state.

    No clock, no randomness, no IO, no dependence on dict or set order. A command that cannot
    be carried out is answered with an error reply; ``apply`` raises only when the state itself
    is broken.
    """

    def apply(self, batch: Batch) -> Reply_co:
        """Take in one committed batch, control batches too. The reply goes to its proposer, if they wait here."""

    def snapshot(self) -> bytes:
        """The whole state, versioned, in the same bytes on every replica."""

    def restore(self, snapshot: bytes) -> None:
        """Become the state that ``snapshot`` describes. An empty one means the state at birth."""
