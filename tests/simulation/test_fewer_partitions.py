"""Partitions are decommissioned, removed and added again among other faults."""

from __future__ import annotations

from chaos.simulator.levels import Seed
from chaos.simulator.scenarios.fewer_partitions.part import REFUSALS, REMOVALS


# requirement: F5
def test_partitions_are_decommissioned_while_brokers_fail() -> None:
    results = [Seed("brokers-fewer", number).run() for number in (3, 9, 12)]
    assert [result.violations for result in results] == [()] * 3
    assert sum(result.faults[REFUSALS] for result in results) > 0
    assert sum(result.faults[REMOVALS] for result in results) > 0
