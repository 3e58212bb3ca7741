"""Delayed messages over whole brokers: clients send, cancel and reschedule them through any broker.

Decides: the requests of these clients, and the rules for delayed messages (D1 to D7). Leaves to others: the
faults of brokers (``verification.simulator.faults``), and the logs as bytes
(``verification.simulator.originals``).

``judge`` follows the committed records of ``__delayed`` and of the target topics, without code of the
coordinator, and compares them with each other and with the answers to clients. ``part`` combines clients and
judge.
"""

from __future__ import annotations

from typing import Final

from verification.simulator.faults import Faults
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.delays.odds import (
    AFTER_A_MOVE,
    AFTER_AN_ASSIGNMENT,
    BEFORE_A_MOVE,
    DelayOdds,
    draw,
)
from verification.simulator.scenarios.delays.part import Delays

SCENARIO: Final = Scenario(
    own=DelayOdds,
    draw=draw,
    begin=Delays,
    aims={
        AFTER_AN_ASSIGNMENT: Faults.leads_no_more,
        BEFORE_A_MOVE: Faults.leads_no_more,
        AFTER_A_MOVE: Faults.dies,
    },
)
