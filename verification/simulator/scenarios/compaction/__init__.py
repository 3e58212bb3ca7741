"""Clients of a compacted topic with few keys, and what its readers must see at the end.

Decides: which keys are written and deleted, and what a reader from any offset sees (I34). Leaves to others:
what the files of each replica still have (``originals``), and single responses (``response_checks``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.compaction.odds import CompactedOdds, draw
from verification.simulator.scenarios.compaction.part import CompactedTopic

SCENARIO: Final = Scenario(own=CompactedOdds, draw=draw, begin=CompactedTopic)
