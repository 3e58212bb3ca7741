"""The list of the faults of a run, so that a run can be repeated with exactly these faults.

Decides: how a fault is named. ``at`` is the level's own measure of time; ``number`` seeds the details of the
fault, so that removing one fault does not change the others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. ``node`` is 0 if it is drawn from ``number``, or if no node is meant."""

    number: int
    at: float
    kind: str
    node: int = 0

    def rng(self, seed: int) -> random.Random:
        """The source of its details."""
        return random.Random((seed << 32) + self.number)


Schedule = tuple[Fault, ...]
