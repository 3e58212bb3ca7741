"""A seed that fails is cut down to the faults that matter."""

from __future__ import annotations

import pytest

from chaos.simulator.levels import LOG, Seed
from chaos.simulator.shrink import Shrinker
from tests.helpers.planted_bugs import planted
from tests.simulation.mutants import MUTANTS

CASES = (
    pytest.param("votes without looking at the candidate's log", "core:0", 4, id="core"),
    pytest.param("memberships of truncated entries stay", "log:0", 0, id="log"),
    pytest.param(
        "data found on opening is used without a sync",
        "brokers:1",
        4,
        marks=pytest.mark.slow,
        id="brokers",
    ),
)


@pytest.mark.parametrize(("name", "first", "most"), CASES)
def test_a_planted_bug_is_shown_by_a_few_faults(name: str, first: str, most: int) -> None:
    bug = next(mutant for mutant in MUTANTS if mutant.name == name)
    with planted(bug):
        seed = Seed.named(first)
        while not (found := seed.run(stops_at_violation=True)).violations:
            seed = Seed(seed.level, seed.number + 1)
        shrunk = Shrinker(seed, found, limit_s=30.0).shrink()
        assert shrunk is not None
        assert len(shrunk.schedule) <= most
        assert most < len(found.happened) or seed.level == LOG  # whose odds are all that is cut down
        assert shrunk.odds != seed.odds()
        assert shrunk.result.violations[0].invariant == found.violations[0].invariant
        again = seed.run(shrunk.odds, schedule=shrunk.schedule, keeps_lines=True, stops_at_violation=True)
        assert (again.trace, again.violations) == (shrunk.result.trace, shrunk.result.violations)
    assert "VIOLATION" in shrunk.describe()


def test_a_run_that_breaks_nothing_is_not_shrunk() -> None:
    seed = Seed.named("core:0")
    with pytest.raises(ValueError, match="breaks nothing"):
        Shrinker(seed, seed.run())
