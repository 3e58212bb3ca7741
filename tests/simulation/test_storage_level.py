"""A log alone that dies again and again: a slice of what ``make explore`` runs, and its control."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from verification.simulator.storage_level.log_run import run_log
from verification.simulator.storage_level.odds import LogOdds


# requirement: L9, N4
@pytest.mark.parametrize("first", [1000, 1025])
def test_a_log_opens_after_any_crash_with_all_durable_entries(first: int) -> None:
    results = [run_log(seed) for seed in range(first, first + 25)]
    assert [violation for result in results for violation in result.violations] == []
    assert sum(result.acknowledged for result in results) > 500
    faults = sum((result.faults for result in results), Counter())
    assert min(faults[kind] for kind in ("lose power", "crash", "failing sync", "full disk")) > 0


@pytest.mark.slow
def test_thousands_of_logs() -> None:
    assert [result for seed in range(5000) if (result := run_log(seed)).violations] == []


# requirement: L9
def test_a_log_on_a_disk_that_lies_about_syncs_is_found_out() -> None:
    """The control: when syncs do nothing, the judge must convict most seeds."""
    odds = replace(LogOdds.drawn(random.Random(1)), lies_about_syncs=True, power=1.0)
    convicted = sum(bool(run_log(seed, odds).violations) for seed in range(20))
    assert convicted >= 15


def test_equal_seeds_give_equal_runs() -> None:
    once, again = run_log(7, keeps_lines=True), run_log(7)
    assert (once.trace, once.faults) == (again.trace, again.faults)
    assert "lose power" in once.timeline
