"""How often things go wrong in a Raft group in memory."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Odds:
    """How often things go wrong, per chance; drawn anew for every seed."""

    drop: float
    repeat: float
    delay_steps_max: int
    cut: float
    crash: float
    unreachable: float
    write_delay: float  # the chance that a disk does nothing although it could
    transfer: float
    campaign: float
    propose: float
    read: float
    partition: float
    stall: float  # the chance that a disk begins to do nothing at all for a while
    change: float = 0.0
    cut_prefix: float = 0.0
    wipe: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> Odds:
        """Each fault is often absent, sometimes rare and sometimes frequent."""

        def odds(most: float) -> float:
            return rng.choice([0.0, 0.1, 0.3, 1.0]) * most

        return cls(
            drop=odds(0.2),
            repeat=odds(0.4),
            delay_steps_max=rng.choice([1, 1, 2, 5]),
            cut=odds(0.7),
            crash=odds(0.01),
            unreachable=odds(0.03),
            write_delay=rng.choice([0.0, 0.3, 0.6, 0.8]),
            transfer=odds(0.02),
            campaign=odds(0.02),
            propose=rng.choice([0.05, 0.3, 0.8]),
            read=odds(0.2),
            partition=rng.choice([0.0, 0.01, 0.02, 0.04]),
            stall=odds(0.03),
            change=rng.choice([0.0, 0.02, 0.1]),
            cut_prefix=odds(0.05),
            wipe=odds(0.1),
        )


CALM = Odds(
    drop=0.0,
    repeat=0.0,
    delay_steps_max=1,
    cut=0.0,
    crash=0.0,
    unreachable=0.0,
    write_delay=0.0,
    transfer=0.0,
    campaign=0.0,
    propose=0.0,
    read=0.0,
    partition=0.0,
    stall=0.0,
)
"""Nothing goes wrong and nobody asks for anything."""
