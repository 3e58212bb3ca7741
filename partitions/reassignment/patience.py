"""For how long the new replicas of one move have made no progress.

Decides: when a leader has waited long enough. Leaves to others: asking the broker why, and reporting it
(``reassigner``); another target (``metadata.healing``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.types import Index, NodeId

STUCK_AFTER_S: Final = 10.0  # a replica opens in far less, and answers while it catches up


class Patience:
    """The waiting time for each new replica of one move."""

    def __init__(self) -> None:
        self._waited: dict[NodeId, tuple[Index | None, float]] = {}

    def stuck(self, now_s: float, progress: Mapping[NodeId, Index | None]) -> frozenset[NodeId]:
        """The replicas whose progress (None: not a learner yet) has been the same for ``STUCK_AFTER_S``."""
        waited: dict[NodeId, tuple[Index | None, float]] = {}
        for node, reached in progress.items():
            before = self._waited.get(node)
            waited[node] = before if before is not None and before[0] == reached else (reached, now_s)
        self._waited = waited
        return frozenset(node for node, (_, since) in waited.items() if now_s - since >= STUCK_AFTER_S)
