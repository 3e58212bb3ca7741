"""The random parameters of brokers that are balanced: they are settings of the brokers."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from verification.simulator.odds import Odds

PLAN: Final = "plan"
"""An operator requests balancing: with a new plan, an old one, or a cancelled one."""


@dataclass(frozen=True, slots=True)
class BalanceOdds:
    """A run has it or not."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, BalanceOdds]:
    """Draw a run in which brokers are balanced, in some runs by plans of operators only."""
    after_ms, moves_max = rng.choice((1_000, 2_000, 4_000)), rng.choice((0, 1, 2, 2, 10))
    settings = replace(cluster.settings, balance_after_ms=after_ms, balancing_moves_max=moves_max)
    return replace(cluster, settings=settings, timed=(*cluster.timed, *(PLAN,) * 4)), BalanceOdds()
