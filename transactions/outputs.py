"""What the coordinator of transactions wants done after a step, in order. Nothing is decided here."""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, Effect, RequestId, Write
from transactions.records import Handle, Key, Participant, Transaction, TransactionKey, Value
from transactions.requests import Reply
from transactions.state import TransactionsState

Row = tuple[Key, Value | None]


@dataclass(frozen=True, slots=True)
class Mark(Effect):
    """Tell each partition and group of a decided transaction its outcome, then report it complete."""

    transaction: Handle
    is_commit: bool
    partitions: tuple[Participant, ...]
    groups: tuple[str, ...]


Output = Answer[Reply] | Write[Row] | Mark


@dataclass(slots=True)
class Outputs:
    """Collects them. ``state`` is what the partition's records add up to once all are committed."""

    state: TransactionsState
    wanted: list[Output] = field(default_factory=list)

    def answer(self, request_id: RequestId, reply: Reply | RaftlogError, *, is_settled: bool = False) -> None:
        """Answer one request."""
        self.wanted.append(Answer(request_id, reply, is_settled))

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write records, all in one batch; the state has them at once."""
        self.wanted.append(Write(rows, frees_room))
        for key, value in rows:
            self.state.put(key, value)

    def put(self, name: str, transaction: Transaction) -> None:
        """Write one transaction."""
        self.write((TransactionKey(name), transaction))

    def mark(self, name: str, transaction: Transaction, *, is_commit: bool) -> None:
        """Send the markers of a transaction that is decided."""
        handle = Handle(name, transaction.producer_id, transaction.epoch)
        self.wanted.append(Mark(handle, is_commit, transaction.partitions, transaction.groups))

    def take(self) -> list[Output]:
        """All since the last call."""
        taken, self.wanted = self.wanted, []
        return taken
