"""The random parameters of a run whose partitions are decommissioned: the scenario has no parameter of its
own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from verification.simulator.odds import Odds


@dataclass(frozen=True, slots=True)
class FewerOdds:
    """Marks a run in which partitions are decommissioned; it has no parameters."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, FewerOdds]:
    """Draw a run without administrators of topics, in which partitions are decommissioned."""
    cluster = replace(cluster, administrators=0, recovers=False, producers=1, consumers=0)
    return cluster.with_check_ms(rng.choice((100, 500))), FewerOdds()
