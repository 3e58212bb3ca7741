"""The random parameters of groups that nobody uses: they expire in the run, while wall clocks jump."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Self

EXPIRY_ODDS: Final = 0.15  # of runs with a consumer group
CLOCKS: Final = ("wall clock", "wall clock")
BESIDE_CLOCKS: Final = ("kill", "lose power", "isolate leader", "depose", "transfer")
"""Other faults of such a run: few, and none that holds back an append for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryOdds:
    """Coordinators look for groups to forget as often as the retention lasts."""

    retention_ms: int  # of the offsets of a group without members
    pause: float  # the mean time between two commits of a group, as a multiple of the retention

    @classmethod
    def drawn(cls, rng: random.Random) -> Self | None:
        """For one seed; None for most of them."""
        if rng.random() >= EXPIRY_ODDS:
            return None
        return cls(retention_ms=rng.choice((1_000, 2_000)), pause=rng.choice((0.3, 0.7, 1.5)))
