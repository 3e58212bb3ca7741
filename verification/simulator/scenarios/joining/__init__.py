"""Brokers that join an existing cluster, and decommissioned brokers that are removed permanently.

Decides: which brokers join or are removed, and when. Checks that a removed broker holds no replica and is
kept out (I42, L14). Leaves to others: taking brokers out of use (``healing``), and the memberships
(``verification.simulator.memberships``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.joining.odds import JOIN, REMOVE, JoinOdds, draw
from verification.simulator.scenarios.joining.part import Joining

SCENARIO: Final = Scenario(own=JoinOdds, draw=draw, begin=Joining, timed=(JOIN, REMOVE))
