"""What went wrong in a run, one by one, so that a run can be told to let just these happen.

Decides: how a fault is named. ``at`` is the level's own measure of time; ``number`` seeds whatever the
fault draws, so that one fault less does not change what the others do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that went wrong. ``node`` is 0 where it is drawn from ``number``, or none is meant."""

    number: int
    at: float
    kind: str
    node: int = 0

    def rng(self, seed: int) -> random.Random:
        """Where it draws its details from."""
        return random.Random((seed << 32) + self.number)


Schedule = tuple[Fault, ...]
