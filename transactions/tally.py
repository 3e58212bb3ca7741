"""Counters of one coordinator for its metrics. Nothing is decided here.

Counted is what the coordinator has decided; after an append that has failed, some of it may count twice.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field


class AbortReason(enum.StrEnum):
    """Why a transaction was aborted."""

    PRODUCER = "producer"  # its own request, or that of its sink
    TIMEOUT = "timeout"
    FENCED = "fenced"  # by a new incarnation
    OPERATOR = "operator"


@dataclass(slots=True)
class Tally:
    """Counters of one partition of ``__transactions`` since its replica was opened here."""

    committed: int = 0
    aborted: Counter[AbortReason] = field(default_factory=Counter)
    markers_unwritten: int = 0  # that this coordinator is sending
    marker_retries: int = 0

    def decided(self, count: int, abort: AbortReason | None) -> None:
        """So many transactions are committed, or aborted."""
        if abort is None:
            self.committed += count
        else:
            self.aborted[abort] += count
