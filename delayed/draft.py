"""Collects the outputs of the decisions of one leader epoch, and the state that they lead to."""

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

LOOK_MS: Final = 1_000  # maximum time until a jump of the wall clock is noticed
UNKNOWN_TIME_MS: Final = 1_000  # pause between two checks of an unknown time
IDLE_MS: Final = 600_000

Done = Move | Sweep | SweepTopics
Output = Answer[Reply] | Write[Row] | Done


@dataclass(slots=True)
class Draft(Outputs[Reply, Row, Done]):
    """Collects outputs. ``state`` includes written records that are not committed yet."""

    state: DelayedState
    now_ms: int
    wall_ms: int
    has_room: Callable[[], bool] = lambda: True  # on the disk, above the reserve
    is_time_known: bool = True  # whether the brokers agree on a time, so that ``wall_ms`` is close to it

    def check_time(self) -> None:
        """Raise ``Overloaded`` while the brokers do not agree on a time: then ``wall_ms`` is unreliable."""
        if not self.is_time_known:
            raise Overloaded(
                "the brokers do not agree on a time yet, so delays cannot be measured; retry, or check the "
                "clocks of the brokers",
                retry_after_ms=UNKNOWN_TIME_MS,
            )

    def check_disk(self) -> None:
        """Raise ``StorageFull`` while the disk has no room outside its reserve."""
        if not self.has_room():
            raise StorageFull("the leader's disk is full; free space or retry later", retry_after_ms=1000)

    def write(self, *rows: Row, frees_room: bool = False) -> None:
        """Write records in one batch. Records without a new message may use the reserve of a full disk.

        Such records remove messages, or belong to a request that ``check_disk`` has checked.
        """
        frees_room = frees_room or not any(isinstance(row.value, Message) for row in rows)
        Outputs.write(self, *rows, frees_room=frees_room)

    def put(self, row: Row) -> None:
        """Apply a row to the state."""
        self.state.put(row, self.wall_ms)

    def leaving(self, id_: bytes, outcome: Outcome) -> list[Row]:
        """Make the rows that remove a pending message, with its outcome."""
        due_ms = self.state.waiting.due_of(id_)
        assert due_ms is not None, "a message leaves once"
        rows = [Row(MessageKey(id_), None, outcome, due_ms)]
        if self.state.waiting.is_changed(id_):
            rows.append(Row(ChangeKey(id_), None))
        return rows

    def change_of(self, id_: bytes, *, failed: str = "") -> Change:
        """Make a change record with the current time and target of a message."""
        one = self.state.waiting[id_]
        return Change(one.due_ms, failed, one.partition)


def wait_ms(left_ms: int | None) -> int:
    """The milliseconds until the next check of the wall clock. ``left_ms`` None: no message is awaited."""
    return IDLE_MS if left_ms is None else min(LOOK_MS, max(0, left_ms))
