"""Readers that any replica may serve, of plain or of transactional partitions.

Decides: which replica is asked, with which bounds, and what its response must know (I18, I38, I39). Leaves to
others: gaps and repetitions (``chaos.checkers``), and the transactions (``transactions``).
"""

from __future__ import annotations

import random
from typing import Final

from verification.simulator.odds import Odds
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios import transactions
from verification.simulator.scenarios.followers.odds import FollowerOdds, draw
from verification.simulator.scenarios.followers.part import Followers


def _base(rng: random.Random) -> Odds:
    """Draw the base of the run: in half of the runs with transactions."""
    return transactions.SCENARIO.drawn(rng) if rng.random() < 0.5 else Odds.drawn(rng)


SCENARIO: Final = Scenario(own=FollowerOdds, draw=draw, begin=Followers, base=_base)
