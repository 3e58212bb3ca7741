"""Balancing of brokers, by the cluster itself and by administrators, while brokers die.

Decides: which plans are requested, carried out late or twice, or cancelled. Checks all moves of replicas
(I40, I41), and that at the end the numbers of replicas per broker differ by at most one (L13). Leaves to
others: deaths (``healing``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios import healing
from verification.simulator.scenarios.balancing.odds import PLAN, BalanceOdds, draw
from verification.simulator.scenarios.balancing.part import Balancing

SCENARIO: Final = Scenario(
    own=BalanceOdds, draw=draw, begin=Balancing, base=healing.SCENARIO.drawn, timed=(PLAN,)
)
