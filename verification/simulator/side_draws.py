"""Provides random numbers for additions to a run, without changing the other draws of a seed."""

from __future__ import annotations

import random


def beside(rng: random.Random) -> random.Random:
    """Return another stream that is determined by the state of this one; the state does not change."""
    state = rng.getstate()[1]
    return random.Random(f"{state[0]} {state[-1]}")
