"""Counters of one coordinator of delayed messages for its metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

LATENESS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 600_000)
"""Upper bounds in milliseconds of the classes of the lateness histogram; one more class has longer times."""


@dataclass(slots=True)
class Tally:
    """Counters of one partition of ``__delayed``, since this broker opened its replica."""

    delivered: int = 0
    failed: int = 0
    retries: int = 0
    fired: int = 0
    missed: int = 0
    lateness_sum_ms: int = 0
    lateness: list[int] = field(default_factory=lambda: [0] * (len(LATENESS_MS) + 1))

    def note_delivered(self, late_ms: int) -> None:
        """Count a message delivered ``late_ms`` after its due time, by the coordinator's wall clock."""
        late_ms = max(0, late_ms)  # the clock went back
        self.delivered += 1
        self.lateness_sum_ms += late_ms
        self.lateness[bisect_left(LATENESS_MS, late_ms)] += 1
