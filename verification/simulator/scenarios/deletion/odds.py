"""The random parameters of a run with a client that deletes records: the scenario has no parameter of its
own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from verification.simulator.odds import Odds


@dataclass(frozen=True, slots=True)
class DeletionOdds:
    """Marks a run with a client that deletes records; it has no parameters."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, DeletionOdds]:
    """Draw a run without administrators, with a client that deletes records."""
    cluster = replace(cluster, administrators=0, recovers=False, deletes_on_request=True)
    return cluster.with_check_ms(rng.choice((100, 500))), DeletionOdds()
