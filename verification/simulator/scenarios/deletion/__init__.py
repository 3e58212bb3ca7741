"""A client that deletes the oldest records of partitions that other clients use.

Decides: which records the client deletes, and when. Leaves to others: whether deleted records become visible
again (``log_starts``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.deletion.odds import DeletionOdds, draw
from verification.simulator.scenarios.deletion.part import Deletion

SCENARIO: Final = Scenario(own=DeletionOdds, draw=draw, begin=Deletion)
