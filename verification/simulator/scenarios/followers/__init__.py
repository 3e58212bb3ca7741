"""Readers that read from any replica, from plain or transactional partitions.

Decides: from which replica a reader reads, with which bounds of staleness, and which records the response
must reflect (I18, I38, I39). Leaves to others: gaps and repetitions (``chaos.checkers``), and the
transactions (``transactions``).
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
    """Draw the run on which the scenario builds: half of the runs have transactions."""
    return transactions.SCENARIO.drawn(rng) if rng.random() < 0.5 else Odds.drawn(rng)


SCENARIO: Final = Scenario(own=FollowerOdds, draw=draw, begin=Followers, base=_base)
