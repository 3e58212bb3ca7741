"""All scenarios of whole brokers: each is a folder with its odds, its actors and its checks.

Decides: which scenarios there are, and their order where a run has several. Leaves to others: the interface
(``chaos.simulator.part``), and drawing (``chaos.simulator.scenario``).
"""

from __future__ import annotations

from typing import Any, Final

from chaos.simulator.scenario import Scenario
from chaos.simulator.scenarios import (
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

ALL: Final[tuple[Scenario[Any], ...]] = (
    deletion.SCENARIO,
    compaction.SCENARIO,
    http.SCENARIO,
    groups.SCENARIO,
    transactions.SCENARIO,
    followers.SCENARIO,
    delays.SCENARIO,
    queues.SCENARIO,
    fewer_partitions.SCENARIO,
    joining.SCENARIO,
    hosts.SCENARIO,
    healing.SCENARIO,
    balancing.SCENARIO,
)
