"""One request's search for the leader of a partition.

Decides: whom to ask next, when everybody has been asked and it is time to pause, and when to give
up. Leaves to others: asking, and whether asking again is harmless (``gateway``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from raftlog.errors import RaftlogError
from raftlog.types import NodeId

PATIENCE_S: Final = 2.0  # how long a partition may take to find a leader before its users are told
PAUSE_MIN_S: Final = 0.01
PAUSE_MAX_S: Final = 0.1
SERVED_S: Final = 0.25  # an answer that took longer came from one that was serving: patience begins anew


class LeaderSearch:
    """Starts with what is known, follows hints, and never asks one broker twice without a pause."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._gives_up_at: float | None = None
        self._asked: set[NodeId] = set()
        self._hint: NodeId | None = None
        self._began = 0.0
        self._pause_s = PAUSE_MIN_S

    def choose(self, candidates: Iterable[NodeId | None]) -> NodeId | None:
        """The next to ask, the likeliest of ``candidates`` coming first; None when all have been asked."""
        self._began = asyncio.get_running_loop().time()
        for node in (self._hint, *candidates):
            if node is not None and node not in self._asked:
                self._asked.add(node)
                return node
        return None

    async def goes_on(self, error: RaftlogError | None) -> bool:
        """Take note of a refusal, or with None pause; False when it is time to give up."""
        now = asyncio.get_running_loop().time()
        if self._gives_up_at is None or now - self._began > SERVED_S:
            self._gives_up_at = min(now + PATIENCE_S, self._deadline)
        if now >= self._gives_up_at:
            return False
        if error is None:
            await asyncio.sleep(min(self._pause_s, self._gives_up_at - now))
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
            self._asked.clear()
            self._hint = None
            return True
        hint = error.details.get("leader")
        self._hint = NodeId(hint) if isinstance(hint, int) else None
        return True
