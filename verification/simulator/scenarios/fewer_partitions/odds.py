"""The random parameters of a run with partitions that are decommissioned: it has none of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from verification.simulator.odds import Odds


@dataclass(frozen=True, slots=True)
class FewerOdds:
    """A run has it or not."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, FewerOdds]:
    """A run without administrators, with partitions that are decommissioned."""
    cluster = replace(cluster, administrators=0, recovers=False, producers=1, consumers=0)
    return cluster.with_check_ms(rng.choice((100, 500))), FewerOdds()
