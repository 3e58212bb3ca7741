"""Whether a broker has room to lead: its logs take entries, and its disk has more than its reserve left.

Decides: when a broker declines leadership, and when it hands over what it leads. Leaves to others: what room
is, and who leads next (``group_host``).

A broker declines as soon as it lacks room, and hands over later. So brokers that share a disk, or whose disks
fill up together, all decline before one of them hands over to another.
"""

from __future__ import annotations

from typing import Final

LOOKS_MIN: Final = 10  # in a row, before leaderships move or are accepted again: one second


class RoomWatch:
    """One broker. It is told at fixed times whether there is room."""

    def __init__(self) -> None:
        self._with_room = LOOKS_MIN  # looks in a row
        self._without_room = 0

    def look(self, has_room: bool) -> None:
        """Count this look."""
        self._with_room = self._with_room + 1 if has_room else 0
        self._without_room = 0 if has_room else self._without_room + 1

    @property
    def declines(self) -> bool:
        """Whether no leadership should come here."""
        return self._with_room < LOOKS_MIN

    @property
    def hands_over(self) -> bool:
        """Whether leaderships are handed over now: once a second while there is no room."""
        return self._without_room > 0 and self._without_room % LOOKS_MIN == 0
