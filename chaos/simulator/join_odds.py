"""The random parameters of brokers that join."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Self

JOIN: Final = "join"
"""A broker that the cluster was not created with is let in."""

REMOVE: Final = "remove"
"""A decommissioned broker is removed for good."""

BESIDE_JOINS: Final = (
    "kill",
    "lose power",
    "lose power in a change",
    "pause",
    "stop",
    "isolate leader",
    "depose",
    "isolate",
    "one way",
    "break connections",
    "silent links",
    "slow links",
    "slow disk",
    "full disk",
    "transfer",
    "lead again",
)
"""Other faults, some of which come in each such run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOdds:
    """One run's joins."""

    brokers: int  # that join, at most

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Up to as many as make five voters of three or of one, and one more."""
        return cls(brokers=rng.choice((1, 2, 2, 3)))
