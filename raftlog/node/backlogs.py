"""The queue of groups with many committed entries to apply, as after a crash.

Decides: which group applies entries next. Each turn of the event loop applies one slice of one group, so
heartbeats and handshakes wait for one slice at most. Leaves to others: the size of a slice
(``group.applier``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlog.types import GroupId


class Backlogs:
    """The queue of one broker. ``apply_more`` makes a group apply a slice; it may add the group again."""

    def __init__(self, apply_more: Callable[[GroupId], None]) -> None:
        self._apply_more = apply_more
        self._queue: dict[GroupId, None] = {}

    def add(self, group: GroupId) -> None:
        """Queue a group after the groups that already wait."""
        if not self._queue:
            asyncio.get_running_loop().call_soon(self._next)
        self._queue[group] = None

    def _next(self) -> None:
        group = next(iter(self._queue))
        if len(self._queue) > 1:
            asyncio.get_running_loop().call_soon(self._next)
        del self._queue[group]
        self._apply_more(group)
