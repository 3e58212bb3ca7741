"""The answers, records and effects of one coordinator's decisions, in order.

Records change the state as soon as they are output: the next decision sees them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, Effect, RequestId, Write

Reply = TypeVar("Reply")
Row = TypeVar("Row")
EffectT = TypeVar("EffectT", bound=Effect)


@dataclass(slots=True)
class Outputs(Generic[Reply, Row, EffectT]):
    """Collects answers, records and effects until ``take`` is called."""

    wanted: list[Answer[Reply] | Write[Row] | EffectT] = field(default_factory=list, kw_only=True)

    @abstractmethod
    def put(self, row: Row) -> None:
        """Change the state now as the record will change it, which is about to be written."""

    def answer(self, request_id: RequestId, reply: Reply | RaftlogError, *, is_settled: bool = False) -> None:
        """Answer one request once all earlier records are committed; a settled answer is sent at once."""
        self.wanted.append(Answer(request_id, reply, is_settled))

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Output records for one batch; the state contains their changes at once."""
        if rows:
            self.wanted.append(Write(rows, frees_room))
            for row in rows:
                self.put(row)

    def perform(self, effect: EffectT) -> None:
        """Carry out an effect once all earlier records are committed."""
        self.wanted.append(effect)

    def take(self) -> list[Answer[Reply] | Write[Row] | EffectT]:
        """Return and remove all outputs since the last call."""
        taken, self.wanted = self.wanted, []
        return taken
