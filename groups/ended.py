"""How deliveries have ended of which no row tells any more: the job is closed, or another worker has it.

Only of the newest ones, and only as long as one coordinator lasts: an answer to a repetition or to a late
worker is better for them, and nothing else depends on them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from groups.open_jobs import Place

ENDED_MAX: Final = 1_000  # of all queues of one partition of ``__offsets``
Name = tuple[str, str]  # group and topic


class End(NamedTuple):
    """The newest delivery of a job that was given back, or after which the job was a dead letter."""

    lease: bytes
    how: Literal["given back", "dead"]


class EndedDeliveries:
    """The oldest ones are forgotten first."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[Name, Place], End] = OrderedDict()

    def get(self, name: Name, place: Place) -> End | None:
        """The end of the newest delivery of a job that has ended so; None if none is known."""
        return self._ends.get((name, place))

    def remember(self, name: Name, place: Place, end: End) -> None:
        """One more has ended."""
        self._ends[name, place] = end
        if len(self._ends) > ENDED_MAX:
            self._ends.popitem(last=False)

    def forget(self, name: Name, place: Place) -> None:
        """The job begins anew."""
        self._ends.pop((name, place), None)
