"""Defines the list of the faults of a run, with which the run can be repeated with exactly these faults.

Decides: how a fault is identified. ``at`` is in the time unit of the level. ``number`` is the seed of the
fault's details, so that the removal of one fault does not change other faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault. ``node`` is 0 if the node is drawn from ``number``, or if the fault has no node."""

    number: int
    at: float
    kind: str
    node: int = 0

    def rng(self, seed: int) -> random.Random:
        """Return the stream of random numbers for the fault's details."""
        return random.Random((seed << 32) + self.number)


Schedule = tuple[Fault, ...]
