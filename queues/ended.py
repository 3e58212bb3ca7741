"""Ends of deliveries without a row: the job is closed, or another worker has the job.

The newest ends are remembered while one coordinator lasts. Answers to repetitions and to late workers are
more exact with them; nothing else depends on them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from queues.open_jobs import Place

ENDED_MAX: Final = 1_000  # of all queues of one partition of ``__offsets``
Name = tuple[str, str]  # group and topic


class End(NamedTuple):
    """The newest delivery of a job that was given back, or after which the job was a dead letter."""

    lease: bytes
    how: Literal["given back", "dead"]


class EndedDeliveries:
    """The newest ends of deliveries. The oldest ends are forgotten first."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[Name, Place], End] = OrderedDict()

    def get(self, name: Name, place: Place) -> End | None:
        """The end of the newest delivery of a job that has ended so; None if none is known."""
        return self._ends.get((name, place))

    def remember(self, name: Name, place: Place, end: End) -> None:
        """Remember one more ended delivery."""
        self._ends[name, place] = end
        if len(self._ends) > ENDED_MAX:
            self._ends.popitem(last=False)

    def forget(self, name: Name, place: Place) -> None:
        """Forget the end of a delivery of a job that is open again."""
        self._ends.pop((name, place), None)
