"""Groups that have more to apply than one turn of the event loop allows, as after a crash.

Decides: whose turn it is; one slice of one group in each turn of the loop, so heartbeats and handshakes
wait for one slice at most. Leaves to others: how much a slice is (``group.applier``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlog.types import GroupId


class Backlogs:
    """The queue of these groups. ``apply_more`` has a group apply a slice; it may add it again."""

    def __init__(self, apply_more: Callable[[GroupId], None]) -> None:
        self._apply_more = apply_more
        self._queue: dict[GroupId, None] = {}

    def add(self, group: GroupId) -> None:
        """Queue a group behind the groups that already wait."""
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._next)
        self._queue[group] = None

    def _next(self) -> None:
        group = next(iter(self._queue))
        if len(self._queue) > 1:
            asyncio.get_running_loop().call_soon(self._next)
        del self._queue[group]
        self._apply_more(group)
