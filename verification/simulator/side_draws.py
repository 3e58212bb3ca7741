"""Additional draws that leave all other draws of a seed as they are."""

from __future__ import annotations

import random


def beside(rng: random.Random) -> random.Random:
    """Return another stream that follows from this one, whose state does not change."""
    state = rng.getstate()[1]
    return random.Random(f"{state[0]} {state[-1]}")
