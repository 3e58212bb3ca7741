"""Additional draws that leave all other draws of a seed as they are."""

from __future__ import annotations

import random


def beside(rng: random.Random) -> random.Random:
    """Another stream that follows from this one, which does not move."""
    state = rng.getstate()[1]
    return random.Random(f"{state[0]} {state[-1]}")
