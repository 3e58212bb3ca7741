"""Outcomes of messages and schedules that have left, kept while a request about them may be repeated.

The oldest outcomes are forgotten first. A queue beside the dict has the order of the outcomes, since finding
the first key of a dict after many deletions would cost more than all other work for a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from delayed.records import Outcome

RECENT_MS: Final = 600_000
"""Milliseconds for which the outcome of a message is kept: longer than any request may be repeated."""

RECENT_MAX: Final = 100_000


class Left(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a message that left, with its due time and the time when it left."""

    outcome: Outcome
    due_ms: int
    at_ms: int


class Recent(Mapping[bytes, Left]):
    """Outcomes by id, in the order in which the messages left."""

    def __init__(self, rows: Iterable[tuple[bytes, Left]] = ()) -> None:
        self._left = dict(rows)
        self._order = deque(self._left)

    def __len__(self) -> int:
        return len(self._left)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._order)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._left

    def __getitem__(self, id_: bytes) -> Left:
        return self._left[id_]

    def copy(self) -> Recent:
        """Copy the outcomes, for independent changes."""
        copied = Recent()
        copied._left, copied._order = self._left.copy(), self._order.copy()
        return copied

    def rows(self) -> list[tuple[bytes, Left]]:
        """All ids with their outcomes, in the order in which the messages left."""
        return list(self._left.items())

    def remember(self, id_: bytes, left: Left) -> None:
        """Remember the outcome of a message; a repeated call keeps the place of the first call."""
        if id_ not in self._left:
            self._order.append(id_)
        self._left[id_] = left

    def forget_before(self, at_ms: int) -> None:
        """Forget outcomes older than ``RECENT_MS`` at ``at_ms``, and the oldest above ``RECENT_MAX``."""
        left, order = self._left, self._order
        while order and (len(order) > RECENT_MAX or left[order[0]].at_ms + RECENT_MS <= at_ms):
            del left[order.popleft()]
