"""Clients of a compacted topic with few keys, and checks of the records that readers get at the end.

Decides: which keys are written and deleted, and which records a reader from any offset must get (I34). Leaves
to others: which records the files of a replica must still have (``originals``), and the check of each
response (``response_checks``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.compaction.odds import CompactedOdds, draw
from verification.simulator.scenarios.compaction.part import CompactedTopic

SCENARIO: Final = Scenario(own=CompactedOdds, draw=draw, begin=CompactedTopic)
