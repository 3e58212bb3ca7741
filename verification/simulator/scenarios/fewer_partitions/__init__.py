"""Partitions that are decommissioned, recommissioned, removed and added again, while clients produce.

Decides: the requests of administrators, and the rules that are checked on the records: a refused record is
not stored, an acknowledged record is stored once and stays until a client requests its deletion, and no
offset names two records. Leaves to others: the faults, and the rules that hold for all topics (``checker``,
``incarnations``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.fewer_partitions.odds import FewerOdds, draw
from verification.simulator.scenarios.fewer_partitions.part import FewerPartitions

SCENARIO: Final = Scenario(own=FewerOdds, draw=draw, begin=FewerPartitions)
