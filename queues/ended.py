"""Ends of deliveries that no row shows any more: the job is closed, or another worker has it.

One coordinator keeps the newest ends in memory. With these ends, answers to repeated and late requests are
more exact; correctness does not depend on them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from queues.open_jobs import Place

ENDED_MAX: Final = 1_000  # of all queues of one partition of ``__offsets``
Name = tuple[str, str]  # group and topic


class End(NamedTuple):
    """End of a job's newest delivery: the job was given back, or became a dead letter."""

    lease: bytes
    how: Literal["given back", "dead"]


class EndedDeliveries:
    """The newest ends of deliveries. The oldest ends are forgotten first."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[Name, Place], End] = OrderedDict()

    def get(self, name: Name, place: Place) -> End | None:
        """The newest known end of a delivery of a job, or None."""
        return self._ends.get((name, place))

    def remember(self, name: Name, place: Place, end: End) -> None:
        """Remember the end of a delivery. Above ``ENDED_MAX`` ends, forget the oldest end."""
        self._ends[name, place] = end
        if len(self._ends) > ENDED_MAX:
            self._ends.popitem(last=False)

    def forget(self, name: Name, place: Place) -> None:
        """Forget the end of a job's delivery, because the job is open again."""
        self._ends.pop((name, place), None)
