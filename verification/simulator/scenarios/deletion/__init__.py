"""A client that deletes the oldest records of the partitions that others use.

Decides: which records, and when. Leaves to others: whether deleted records become visible again
(``log_starts``).
"""

from __future__ import annotations

from typing import Final

from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.deletion.odds import DeletionOdds, draw
from verification.simulator.scenarios.deletion.part import Deletion

SCENARIO: Final = Scenario(own=DeletionOdds, draw=draw, begin=Deletion)
