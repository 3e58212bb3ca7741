"""Draws the random parameters of one run of a group's coordinator alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOdds:
    """The random parameters: probabilities are per request, times are in milliseconds."""

    members: int
    partitions: int
    faulty_ms: int  # how long faults last
    fault_every_ms: int
    delay_ms: int  # the mean of a request's way, and of an answer's
    commit_ms: int  # the mean of an append
    lost: float  # answers
    doubled: float  # requests
    late: float  # a second copy comes a session later
    zombie_ms: int  # how long a deposed coordinator goes on
    strategies: tuple[str, ...]
    are_static: float  # members with an instance id
    keeps_id: float = 0.3  # a process that crashed and comes back has its member id again
    changes: float = 0.0  # requests before which a member subscribes to one more topic, or no longer
    session_ms: int = 6_000
    rebalance_ms: int = 10_000

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the parameters for one seed."""
        return replace(cls._drawn(rng), changes=rng.choice((*[0.0] * 15, 0.05)))

    @classmethod
    def _drawn(cls, rng: random.Random) -> Self:
        return cls(
            members=rng.choice((1, 2, 3, 3, 5)),
            partitions=rng.choice((1, 3, 4, 7)),
            faulty_ms=rng.choice((20_000, 60_000)),
            fault_every_ms=rng.choice((300, 1_000, 3_000)),
            delay_ms=rng.choice((1, 20, 200)),
            commit_ms=rng.choice((1, 10, 300)),
            lost=rng.choice((0.0, 0.05, 0.3)),
            doubled=rng.choice((0.0, 0.1, 0.3)),
            late=rng.choice((0.0, 0.0, 0.1)),
            zombie_ms=rng.choice((0, 500, 5_000)),
            strategies=rng.choice(
                (("range",), ("roundrobin",), ("sticky", "range"), ("cooperative-sticky",))
            ),
            are_static=rng.choice((0.0, 0.0, 0.5, 1.0)),
        )

    @classmethod
    def drawn_for_brokers(cls, rng: random.Random) -> Self:
        """Draw the parameters for a run of whole brokers. Such a run is short, and its own faults stop
        coordinators.
        """
        return replace(
            cls._drawn(rng),
            members=rng.choice((1, 2, 3)),
            fault_every_ms=rng.choice((500, 1_500, 4_000)),
            delay_ms=rng.choice((1, 20)),
            session_ms=2_000,
            rebalance_ms=3_000,
        )
