"""Partitions that are decommissioned, recommissioned, removed and added again, while others produce.

Decides: the requests of administrators, and the rules that the records prove: what was refused is not
stored, what was acknowledged is stored once and stays until somebody asks to delete it, and no offset names
two records. Leaves to others: the faults, and the rules of every topic (``checker``, ``incarnations``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.fewer_partitions.odds import FewerOdds, draw
from verification.simulator.scenarios.fewer_partitions.part import FewerPartitions

SCENARIO: Final = Scenario(own=FewerOdds, draw=draw, begin=FewerPartitions)
