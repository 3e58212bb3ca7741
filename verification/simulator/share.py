"""The share of a level among all seeds: in a sweep, and in an exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROUND_S: Final = 100
"""The approximate CPU time of a round of an exploration, in seconds; each round has seeds of every level."""


@dataclass(frozen=True, slots=True)
class Share:
    """A level's share: ``percent`` of the time of an exploration. ``seed_s`` is the average CPU time of a
    seed, in seconds.

    ``places`` are the positions of the level's seeds among 480 consecutive seeds of a sweep.
    """

    percent: int
    seed_s: float
    places: tuple[int, ...] = ()

    @property
    def seeds_a_round(self) -> int:
        """Return how many seeds of the level a round of an exploration has; at least one."""
        return max(1, round(self.percent * ROUND_S / 100 / self.seed_s))
