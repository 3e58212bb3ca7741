"""Partitions are decommissioned, removed and added again among other faults."""

from __future__ import annotations

from chaos.simulator.fewer_partitions import REFUSALS, REMOVALS
from chaos.simulator.levels import BROKERS_FEWER, Seed


# requirement: F5
def test_partitions_are_decommissioned_while_brokers_fail() -> None:
    result = Seed(BROKERS_FEWER, 9).run()
    assert result.violations == ()
    assert min(result.faults[kind] for kind in (REFUSALS, REMOVALS)) > 0
