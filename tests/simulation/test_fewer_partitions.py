"""Partitions are decommissioned, removed and added again among other faults."""

from __future__ import annotations

from verification.simulator.levels import Seed
from verification.simulator.scenarios.fewer_partitions.part import REFUSALS, REMOVALS


# requirement: F5
def test_partitions_are_decommissioned_while_brokers_fail() -> None:
    result = Seed("brokers-fewer", 9).run()
    assert result.violations == ()
    assert min(result.faults[kind] for kind in (REFUSALS, REMOVALS)) > 0
