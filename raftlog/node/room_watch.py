"""Whether a broker is fit to lead: its logs take entries, its disk has room, and it hears the controller.

Decides: when a broker declines leadership, and when it hands over what it leads. Leaves to others: what room
is, who the active controller is, and who leads next (``group_host``).

A broker declines as soon as it lacks room, and hands over later. So brokers that share a disk, or whose disks
fill up together, all decline before one of them hands over to another.

A broker whose link to the active controller alone is broken counts as dead there, learns of no target, and
confirms none: partitions that it leads could not be moved or restored for as long as that lasts. It declines
once it must count as dead, and no longer than that: elections of a controller move no leadership.
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


class ControllerWatch:
    """One broker. It is told at fixed times whether it hears the active controller.

    ``looks_max`` is the number of looks in a row without it after which the broker is cut off.
    """

    def __init__(self, looks_max: int) -> None:
        self._looks_max = looks_max
        self._unheard = 0  # looks in a row

    def look(self, is_heard: bool) -> bool:
        """Count this look; whether to hand leaderships over now: once a second, a second after declining."""
        if is_heard:
            self._unheard = 0
            return False
        self._unheard += 1
        since = self._unheard - self._looks_max
        return since > 0 and since % LOOKS_MIN == 0

    @property
    def declines(self) -> bool:
        """Whether no leadership should come here."""
        return self._unheard >= self._looks_max
