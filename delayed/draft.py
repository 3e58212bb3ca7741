"""What is decided in one epoch of a leader, in order, and the state that it leads to.

Nothing is decided here. Records change the state as soon as they are wanted: what is decided next knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from delayed.records import Change, ChangeKey, MessageKey, Outcome, Row
from delayed.requests import Reply
from delayed.state import DelayedState
from delayed.values import Move, Sweep, SweepTopics
from raftlog.hosting.decisions import Answer, Write

LOOK_MS: Final = 1_000  # a wall clock that jumps is noticed after this time
IDLE_MS: Final = 600_000

Output = Answer[Reply] | Write[Row] | Move | Sweep | SweepTopics


@dataclass(slots=True)
class Draft:
    """``state`` belongs to the draft: it runs ahead of what is committed."""

    state: DelayedState
    now_ms: int
    wall_ms: int
    wanted: list[Output] = field(default_factory=list)

    def take(self) -> list[Output]:
        """See ``raftlog.hosting.decisions.Decisions``."""
        taken, self.wanted = self.wanted, []
        return taken

    def want(self, output: Output) -> None:
        """An answer or an effect, after all records before it."""
        self.wanted.append(output)

    def write(self, *rows: Row) -> None:
        """These records, in one batch."""
        if rows:
            self.wanted.append(Write(rows))
            for row in rows:
                self.state.put(row, self.wall_ms)

    def leaving(self, id_: bytes, outcome: Outcome) -> list[Row]:
        """The records with which a message leaves."""
        due_ms = self.state.waiting.due_of(id_)
        assert due_ms is not None, "a message leaves once"
        rows = [Row(MessageKey(id_), None, outcome, due_ms)]
        if self.state.waiting.is_changed(id_):
            rows.append(Row(ChangeKey(id_), None))
        return rows

    def change_of(self, id_: bytes, *, failed: str = "") -> Change:
        """What the newest record about a message that waits says of its time and its target."""
        one = self.state.waiting[id_]
        return Change(one.due_ms, failed, one.partition)


def wait_ms(left_ms: int | None) -> int:
    """How long to wait for a time of the wall clock, so long after now; None if there is none."""
    return IDLE_MS if left_ms is None else min(LOOK_MS, max(0, left_ms))
