"""The random parameters of a run of whole brokers with a consumer group."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.odds import Odds

AFTER_A_GROUP_RECORD: Final = "after a record of a group"
"""Fault: the coordinator of a consumer group crashes, is deposed, or raises an unexpected error."""


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, GroupOdds]:
    """Draw a run without administrators, with a consumer group in place of most clients."""
    cluster = cluster.with_few_clients(rng)
    group = GroupOdds.drawn_for_brokers(rng)
    cluster = replace(
        cluster,
        settings=replace(cluster.settings, offsets_partitions=rng.choice((1, 2))),
        offsets_are_compacted=rng.random() < 0.6,
        partitions=rng.choice((1, 2, 4)),
        aimed={**cluster.aimed, AFTER_A_GROUP_RECORD: rng.choice((0.0, 0.1, 0.3))},
    )
    return cluster, group
