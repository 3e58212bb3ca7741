"""A queue on whole brokers: workers receive jobs through any broker, and do not settle some of them.

Decides: the requests of these workers, and the rules for jobs (J1 to J7). Leaves to others: the faults of
brokers (``verification.simulator.faults``), and the logs as bytes (``verification.simulator.originals``).

``judge`` follows the committed records of ``__offsets``, of the topic and of the dead letters, without code
of the coordinator, and compares them with each other and with the requests of workers and the answers to
them. ``part`` combines clients and judge.
"""

from __future__ import annotations

from typing import Final

from verification.simulator.faults import Faults
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.queues.odds import (
    AFTER_A_LEASE,
    AFTER_A_LETTER,
    AFTER_A_REDRIVE,
    QueueOdds,
    draw,
)
from verification.simulator.scenarios.queues.part import Queue

SCENARIO: Final = Scenario(
    own=QueueOdds,
    draw=draw,
    begin=Queue,
    aims={
        AFTER_A_LEASE: Faults.leads_no_more,
        AFTER_A_LETTER: Faults.dies,
        AFTER_A_REDRIVE: Faults.leads_no_more,
    },
)
