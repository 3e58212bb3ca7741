"""Brokers that die, permanently or for longer than a restart takes, and operators who take brokers out of
use.

Decides: which broker may die or be decommissioned, so that no data is lost permanently. Checks that the
replicas of dead brokers are restored (L11). Leaves to others: removing brokers (``joining``), balancing
(``balancing``), and all other checks.
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.healing.odds import DECOMMISSION, DIE, HealingOdds, draw
from verification.simulator.scenarios.healing.part import Healing

SCENARIO: Final = Scenario(own=HealingOdds, draw=draw, begin=Healing, timed=(DIE, DECOMMISSION))
