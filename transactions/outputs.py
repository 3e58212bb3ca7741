"""Collects the answers, records and effects of decisions about transactions."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.hosting import outputs
from raftlog.hosting.decisions import Answer, Effect, Write
from transactions.records import Handle, Key, Participant, Transaction, Value
from transactions.requests import Reply
from transactions.state import TransactionsState

Row = tuple[Key, Value | None]


@dataclass(frozen=True, slots=True)
class Mark(Effect):
    """Send the outcome of a decided transaction to its partitions and groups, then report it as complete."""

    transaction: Handle
    is_commit: bool
    partitions: tuple[Participant, ...]
    groups: tuple[str, ...]


Output = Answer[Reply] | Write[Row] | Mark


@dataclass(slots=True)
class Outputs(outputs.Outputs[Reply, Row, Mark]):
    """Collects outputs. ``state`` is the partition's state once all written records are committed."""

    state: TransactionsState

    def put(self, row: Row) -> None:
        """Apply a row to the state."""
        self.state.put(*row)

    def mark(self, name: str, transaction: Transaction, *, is_commit: bool) -> None:
        """Request the effect that sends the outcome of a decided transaction."""
        handle = Handle(name, transaction.producer_id, transaction.epoch)
        self.perform(Mark(handle, is_commit, transaction.partitions, transaction.groups))
