"""Whether a broker is fit to lead: its logs accept entries, its disk has room, and it hears the controller.

Decides: when a broker declines leadership, and when it transfers its leaderships to other brokers. Leaves to
others: how much room is enough, who the active controller is, and who leads next (``group_host``).

A broker declines as soon as it lacks room, and transfers its leaderships later. So brokers that share a disk,
or whose disks fill up together, all decline before one of them transfers a leadership to another.

If only the link between a broker and the active controller is broken, the controller counts the broker as
dead; the broker gets no new placement from the controller, and confirms none. Partitions that it leads could
not be moved or restored during that time. So it declines as soon as the controller must count it as dead, and
only as long: the election of a controller moves no leadership.
"""

from __future__ import annotations

from typing import Final

LOOKS_MIN: Final = 10  # consecutive looks before leaderships move or are accepted again: one second


class RoomWatch:
    """The room of one broker. ``look`` is called at fixed intervals."""

    def __init__(self) -> None:
        self._with_room = LOOKS_MIN  # consecutive looks
        self._without_room = 0

    def look(self, has_room: bool) -> None:
        """Note whether the broker has room at this interval."""
        self._with_room = self._with_room + 1 if has_room else 0
        self._without_room = 0 if has_room else self._without_room + 1

    @property
    def declines(self) -> bool:
        """Whether this broker should get no leadership."""
        return self._with_room < LOOKS_MIN

    @property
    def hands_over(self) -> bool:
        """Whether to transfer leaderships to other brokers now: once a second while there is no room."""
        return self._without_room > 0 and self._without_room % LOOKS_MIN == 0


class ControllerWatch:
    """The link of one broker to the active controller. ``look`` is called at fixed intervals.

    ``looks_max``: the number of intervals in a row without the controller after which the broker counts as
    cut off.
    """

    def __init__(self, looks_max: int) -> None:
        self._looks_max = looks_max
        self._unheard = 0  # consecutive looks

    def look(self, is_heard: bool) -> bool:
        """Note whether the controller was heard; return whether to transfer leaderships to other brokers now.

        That is once a second, from a second after the broker began to decline.
        """
        if is_heard:
            self._unheard = 0
            return False
        self._unheard += 1
        since = self._unheard - self._looks_max
        return since > 0 and since % LOOKS_MIN == 0

    @property
    def declines(self) -> bool:
        """Whether this broker should get no leadership."""
        return self._unheard >= self._looks_max
