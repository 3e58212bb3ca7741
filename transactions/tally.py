"""Counters of one transaction coordinator for its metrics.

The counters count decisions of the coordinator; after a failed append some decisions may count twice.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class AbortReason(enum.StrEnum):
    """Reason why a transaction was aborted."""

    PRODUCER = "producer"  # requested by its producer, or by its sink
    TIMEOUT = "timeout"
    FENCED = "fenced"  # by a new incarnation
    OPERATOR = "operator"


@dataclass(slots=True)
class Tally:
    """Counters of one partition of ``__transactions``, since this broker opened its replica."""

    committed: int = 0
    aborted: Counter[AbortReason] = field(default_factory=Counter)
    markers_unwritten: int = 0  # markers that this coordinator is sending
    marker_retries: int = 0

    def decided(self, count: int, abort: AbortReason | None) -> None:
        """Count transactions as committed (``abort`` None), or as aborted for this reason."""
        if abort is None:
            self.committed += count
        else:
            self.aborted[abort] += count
