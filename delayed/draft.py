"""Decisions of one epoch of a leader, in order, and the state to which they lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from delayed.records import Change, ChangeKey, Message, MessageKey, Outcome, Row
from delayed.requests import Reply
from delayed.state import DelayedState
from delayed.values import Move, Sweep, SweepTopics
from raftlog.errors import Overloaded, StorageFull
from raftlog.hosting.decisions import Answer, Write
from raftlog.hosting.outputs import Outputs

LOOK_MS: Final = 1_000  # a wall clock that jumps is noticed after this time
UNKNOWN_TIME_MS: Final = 1_000  # before the clock is looked at again
IDLE_MS: Final = 600_000

Done = Move | Sweep | SweepTopics
Output = Answer[Reply] | Write[Row] | Done


@dataclass(slots=True)
class Draft(Outputs[Reply, Row, Done]):
    """``state`` belongs to the draft: it runs ahead of what is committed."""

    state: DelayedState
    now_ms: int
    wall_ms: int
    has_room: Callable[[], bool] = lambda: True  # on the disk, above the reserve
    is_time_known: bool = True  # whether brokers agree on a time, which ``wall_ms`` is then near

    def check_time(self) -> None:
        """Raise ``Overloaded`` while brokers agree on no time: from ``wall_ms`` no delay is counted."""
        if not self.is_time_known:
            raise Overloaded(
                "the brokers agree on no time yet, so no delay can be counted from now; retry, or see to the "
                "clocks of the brokers",
                retry_after_ms=UNKNOWN_TIME_MS,
            )

    def check_disk(self) -> None:
        """Raise ``StorageFull`` while the disk has no room for what frees none."""
        if not self.has_room():
            raise StorageFull("the leader's disk is full; free space or retry later", retry_after_ms=1000)

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write records, in one batch. Without a new message they may use the reserve of a full disk.

        Messages leave by such records, and ``check_disk`` has refused what a request would add.
        """
        frees_room = frees_room or not any(isinstance(row.value, Message) for row in rows)
        Outputs.write(self, *rows, frees_room=frees_room)

    def put(self, row: Row) -> None:
        """Apply a row to the state; see ``Outputs.put``."""
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
        """A change record with the time and the target of a message that waits."""
        one = self.state.waiting[id_]
        return Change(one.due_ms, failed, one.partition)


def wait_ms(left_ms: int | None) -> int:
    """The milliseconds to wait for a wall clock time; ``left_ms`` is None without such a time."""
    return IDLE_MS if left_ms is None else min(LOOK_MS, max(0, left_ms))
