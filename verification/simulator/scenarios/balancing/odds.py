"""The random parameters of runs in which brokers are balanced; they are settings of the brokers."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from verification.simulator.odds import Odds

PLAN: Final = "plan"
"""Fault: an operator requests a plan for balancing, and carries it out early, late or twice, or
cancels it.
"""


@dataclass(frozen=True, slots=True)
class BalanceOdds:
    """Marks a run in which brokers are balanced; it has no parameters."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, BalanceOdds]:
    """Draw a run in which brokers are balanced by the cluster, or, in some runs, only by plans of
    operators.
    """
    after_ms, moves_max = rng.choice((1_000, 2_000, 4_000)), rng.choice((0, 1, 2, 2, 10))
    settings = replace(cluster.settings, balance_after_ms=after_ms, balancing_moves_max=moves_max)
    return replace(cluster, settings=settings, timed=(*cluster.timed, *(PLAN,) * 4)), BalanceOdds()
