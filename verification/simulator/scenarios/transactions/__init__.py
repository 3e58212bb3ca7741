"""Transactions on whole brokers: producers, sinks and readers send requests to any broker.

Decides: the requests of these clients, and the rules for their transactions (T1 to T11). Leaves to others:
the faults of brokers (``verification.simulator.faults``), and the logs as bytes
(``verification.simulator.originals``).

The checks use committed records: ``decided`` follows the records of ``__transactions``, ``sink_log`` the
records of sinks, ``partition_log`` the batches and markers of each partition. None of them uses code of the
coordinator or of partitions. ``judge`` compares the three with each other, with the answers to clients and
with the state of replicas. ``ending`` has the checks after all faults are healed. ``part`` combines clients
and checks.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from verification.simulator.faults import Faults
from verification.simulator.odds import Odds
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios.expiry.odds import ExpiryOdds, perhaps
from verification.simulator.scenarios.transactions.odds import (
    AFTER_A_DECISION,
    BEFORE_A_MARKER,
    BETWEEN_MARKERS,
    TransactionOdds,
    draw,
)
from verification.simulator.scenarios.transactions.part import Transactions
from verification.simulator.scenarios.transactions.wide import NEAR, REFUSED
from verification.simulator.scenarios.transactions.wide_odds import WideOdds
from verification.simulator.side_draws import beside

SCENARIO: Final = Scenario(
    own=TransactionOdds,
    draw=draw,
    begin=Transactions,
    aims={
        AFTER_A_DECISION: Faults.leads_no_more,
        BEFORE_A_MARKER: Faults.leads_no_more,
        BETWEEN_MARKERS: Faults.dies,
    },
    counted=(NEAR, REFUSED),
)


def drawn(rng: random.Random) -> Odds:
    """Draw a run with transactions. In some runs there are only unused ids, sinks and answers, which expire.

    In some other runs the size limit of a frame is small, and transactions come near it.
    """
    plain, more = SCENARIO.drawn(rng), beside(rng)
    cluster, own = perhaps(plain, more), plain.of(TransactionOdds)
    assert own is not None
    if cluster.of(ExpiryOdds) is not None:
        return cluster.having(own.without_producers())
    wide = WideOdds.drawn(more)
    if wide is None:
        return cluster
    settings = replace(cluster.settings, frame_limits=wide.frame_limits)
    return replace(cluster.having(own.with_wide(wide)), settings=settings)
