"""The share of a level among all seeds: in a sweep, and in an exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROUND_S: Final = 100
"""The approximate CPU time of a round of an exploration: each round has every level."""


@dataclass(frozen=True, slots=True)
class Share:
    """``percent`` of the time of an exploration. ``seed_s``: the CPU time of one of its seeds, on average.

    ``places``: those of 480 consecutive seeds of a sweep that are of this level.
    """

    percent: int
    seed_s: float
    places: tuple[int, ...] = ()

    @property
    def seeds_a_round(self) -> int:
        """Return the number of seeds of the level in a round: at least one."""
        return max(1, round(self.percent * ROUND_S / 100 / self.seed_s))
