"""All scenarios of whole brokers: each is a folder with its odds, its actors and its checks.

Decides: which scenarios there are, their order where a run has several, and the share of each among all
seeds. Leaves to others: the interface (``verification.simulator.part``), drawing
(``verification.simulator.scenario``), and seeds without a scenario (``verification.simulator.levels``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from verification.simulator.odds import Odds
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios import (
    balancing,
    compaction,
    delays,
    deletion,
    fewer_partitions,
    followers,
    groups,
    healing,
    hosts,
    http,
    joining,
    queues,
    transactions,
)
from verification.simulator.share import Share


@dataclass(frozen=True, slots=True)
class Listed:
    """A scenario, the name of its level, and the share of this level among all seeds.

    If ``more`` is given, it draws the parameters in place of the scenario's own draw.
    """

    level: str
    scenario: Scenario[Any]
    share: Share
    more: Callable[[random.Random], Odds] | None = None
    runs_busy: bool = True  # also on machines whose CPUs are busy

    def drawn(self, rng: random.Random) -> Odds:
        """Draw the parameters of one seed of this level."""
        return (self.more or self.scenario.drawn)(rng)


ALL: Final = (
    Listed("brokers-group", groups.SCENARIO, Share(5, 0.7, (90,)), groups.drawn),
    Listed("brokers-compacted", compaction.SCENARIO, Share(4, 1, (270,))),
    Listed("brokers-transactions", transactions.SCENARIO, Share(6, 1.5, (180, 330)), transactions.drawn),
    Listed("brokers-delayed", delays.SCENARIO, Share(5, 0.9, (240,))),
    Listed("brokers-followers", followers.SCENARIO, Share(5, 0.9, (60,))),
    Listed("brokers-queue", queues.SCENARIO, Share(6, 0.8, (120,))),
    Listed("brokers-deleting", deletion.SCENARIO, Share(4, 0.6, (300,))),
    Listed("brokers-fewer", fewer_partitions.SCENARIO, Share(4, 0.9, (30,))),
    Listed("http", http.SCENARIO, Share(6, 0.7, (421,))),
    Listed("brokers-joining", joining.SCENARIO, Share(6, 0.35, (210,)), runs_busy=False),
    Listed("brokers-hosts", hosts.SCENARIO, Share(5, 0.8, (450,)), runs_busy=False),
    Listed("brokers-healing", healing.SCENARIO, Share(5, 0.9, (360,)), runs_busy=False),
    Listed("brokers-balancing", balancing.SCENARIO, Share(5, 1, (390,)), runs_busy=False),
)
"""The scenarios. If a run has several, they begin and settle in this order.

Seeds of the level ``brokers-busy`` draw a scenario by its index in this tuple.
"""
