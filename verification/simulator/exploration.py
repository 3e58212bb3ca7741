"""Yields an endless series of fresh seeds, for ``make explore``.

Decides: the share of each level in the time of an exploration. Whole brokers get most of the time: they had
39 of the first 49 errors that ``failed_seeds.txt`` names. A sweep of 5,000 seeds gives a third of its time to
bare cores and logs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import count
from typing import Final

from verification.simulator import scenarios
from verification.simulator.levels import (
    BROKERS,
    BROKERS_BUSY,
    BROKERS_LONG,
    BUSY_SHARE,
    CORE,
    GROUPS,
    LOG,
    Seed,
)
from verification.simulator.seed_choice import First
from verification.simulator.share import Share

SHARES: Final = {
    BROKERS: Share(15, 0.6),
    **{each.level: each.share for each in scenarios.ALL},
    BROKERS_BUSY: BUSY_SHARE,
    BROKERS_LONG: Share(2, 10.0),
    CORE: Share(8, 0.02),
    LOG: Share(2, 0.012),
    GROUPS: Share(2, 0.01),
}
"""The share of each level in a round, in seeds and in percent of the time. The percentages add up to 100."""

WHOLE: Final = frozenset(SHARES) - {CORE, LOG, GROUPS}
"""Levels with whole brokers; their seeds come first in each round."""


def drawn_first() -> First:
    """Draw a first number that no earlier exploration had."""
    return First(secrets.randbits(32), "drawn at random")


def fresh(first: int) -> Iterator[Seed]:
    """Yield seeds in rounds, endlessly. The seeds of each level have consecutive numbers from
    ``first`` on.
    """
    for number in count():
        yield from _round(first, number)


def _round(first: int, number: int) -> list[Seed]:
    """Return the seeds of one round. Seeds of whole brokers come first; each level's seeds are
    spread evenly.
    """
    placed = []
    for level, share in SHARES.items():
        seeds = share.seeds_a_round
        for place in range(seeds):
            seed = Seed(level, first + number * seeds + place)
            placed.append((level not in WHOLE, (place + 0.5) / seeds, seed))
    placed.sort(key=lambda each: each[:2])
    return [seed for _, _, seed in placed]
