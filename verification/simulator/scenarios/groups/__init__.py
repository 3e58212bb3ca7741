"""A consumer group on whole brokers: its members send requests to any broker, and some members fail.

Decides: the faults of members and of their requests, when the group must have settled (C7), and that reads
and replicas show what is committed (C8, C9). Leaves to others: the behaviour of a member, and the checks C1
to C7 (``group_level``), rows that expire (``expiry``), and the faults of brokers (``faults``).
"""

from __future__ import annotations

import random
from typing import Final

from verification.simulator.faults import Faults
from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.odds import Odds
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.expiry.odds import perhaps
from verification.simulator.scenarios.groups.odds import AFTER_A_GROUP_RECORD, draw
from verification.simulator.scenarios.groups.part import ConsumerGroup
from verification.simulator.side_draws import beside

SCENARIO: Final = Scenario(
    own=GroupOdds,
    draw=draw,
    begin=ConsumerGroup,
    aims={AFTER_A_GROUP_RECORD: Faults.leads_no_more},
)


def drawn(rng: random.Random) -> Odds:
    """Draw a run with a consumer group; in some runs unused groups expire, too."""
    return perhaps(SCENARIO.drawn(rng), beside(rng))
