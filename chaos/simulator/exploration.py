"""Fresh seeds without an end: ``make explore``.

Decides: the share of each level in the time. Whole brokers get most of it: they had 39 of the first 49 errors
that ``failed_seeds.txt`` names. A sweep of 5,000 seeds gives a third of its time to bare cores and logs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from chaos.simulator.levels import (
    BROKERS,
    BROKERS_BALANCING,
    BROKERS_BUSY,
    BROKERS_COMPACTED,
    BROKERS_DELAYED,
    BROKERS_DELETING,
    BROKERS_FEWER,
    BROKERS_FOLLOWERS,
    BROKERS_GROUP,
    BROKERS_HEALING,
    BROKERS_HOSTS,
    BROKERS_JOINING,
    BROKERS_LONG,
    BROKERS_QUEUE,
    BROKERS_TRANSACTIONS,
    CORE,
    GROUPS,
    HTTP,
    LOG,
    Seed,
)
from chaos.simulator.seed_choice import First

ROUND_S: Final = 100
"""The CPU time of a round, about: each round has every level."""


@dataclass(frozen=True, slots=True)
class Share:
    """One level's share of the time, and the CPU time of one of its seeds, on average."""

    percent: int
    seed_s: float

    @property
    def seeds_a_round(self) -> int:
        """At least one."""
        return max(1, round(self.percent * ROUND_S / 100 / self.seed_s))


SHARES: Final = {
    BROKERS: Share(15, 0.6),
    BROKERS_HOSTS: Share(5, 0.8),
    BROKERS_TRANSACTIONS: Share(6, 1.5),
    BROKERS_QUEUE: Share(6, 0.8),
    BROKERS_JOINING: Share(6, 0.35),
    BROKERS_BALANCING: Share(5, 1),
    BROKERS_HEALING: Share(5, 0.9),
    BROKERS_DELAYED: Share(5, 0.9),
    BROKERS_FOLLOWERS: Share(5, 0.9),
    BROKERS_GROUP: Share(5, 0.7),
    BROKERS_FEWER: Share(4, 0.9),
    BROKERS_COMPACTED: Share(4, 1),
    BROKERS_DELETING: Share(4, 0.6),
    BROKERS_BUSY: Share(5, 0.8),
    BROKERS_LONG: Share(2, 10.0),
    HTTP: Share(6, 0.7),
    CORE: Share(8, 0.02),
    LOG: Share(2, 0.012),
    GROUPS: Share(2, 0.01),
}
"""Every level. The percentages add up to 100."""

WHOLE: Final = frozenset(SHARES) - {CORE, LOG, GROUPS}
"""Levels with whole brokers: first in each round."""


def drawn_first() -> First:
    """A number that no earlier run began with."""
    return First(secrets.randbits(32), "drawn at random")


def fresh(first: int) -> Iterator[Seed]:
    """Seeds in rounds, without an end; each level's numbers are consecutive from ``first`` on."""
    for number in count():
        yield from _round(first, number)


def _round(first: int, number: int) -> list[Seed]:
    """Whole brokers, then the others; the seeds of each level are spread evenly."""
    placed = []
    for level, share in SHARES.items():
        seeds = share.seeds_a_round
        for place in range(seeds):
            seed = Seed(level, first + number * seeds + place)
            placed.append((level not in WHOLE, (place + 0.5) / seeds, seed))
    placed.sort(key=lambda each: each[:2])
    return [seed for _, _, seed in placed]
