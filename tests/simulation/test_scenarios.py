"""The list of scenarios, and how a run takes them."""

from __future__ import annotations

import re
from pathlib import Path

from verification.simulator import scenarios
from verification.simulator.levels import MIX, Seed
from verification.simulator.odds import Odds
from verification.simulator.scenarios.joining.odds import JOIN, JoinOdds

FOLDER = Path(scenarios.__file__).parent
OF_OTHERS = {"expiry"}  # parameters of groups and of transactions


def drawn(level: str, number: int) -> Odds:
    odds = Seed(level, number).odds()
    assert isinstance(odds, Odds)
    return odds


def test_every_folder_is_listed_once() -> None:
    folders = {path.name for path in FOLDER.iterdir() if (path / "__init__.py").exists()}
    begun = [each.scenario.begin for each in scenarios.ALL]
    listed = [str(getattr(begin, "__module__", "")).split(".")[3] for begin in begun]
    assert len(listed) == len(set(listed))
    assert {*listed} == folders - OF_OTHERS


def test_seeds_have_the_scenario_that_they_are_named_after() -> None:
    for each in scenarios.ALL:
        assert MIX.count(each.level) == len(each.share.places)
        for number in range(20):
            assert drawn(each.level, number).of(each.scenario.own) is not None


def test_a_run_of_brokers_names_no_scenario() -> None:
    """A scenario is whole in its folder: modules beside ``scenarios`` import the list alone."""
    named = re.compile(r"simulator\.scenarios\.|simulator\.scenarios import")
    modules = [path for path in FOLDER.parent.glob("*.py") if named.search(path.read_text())]
    assert modules == []


def test_faults_of_a_scenario_do_not_come_in_a_run_that_is_reduced_to_one_without_it() -> None:
    seed = Seed("brokers-joining", 0)
    full = seed.run()
    assert full.faults[JOIN]
    less = seed.run(drawn(seed.level, seed.number).without(JoinOdds), schedule=full.happened)
    assert less.violations == ()
    assert not less.faults[JOIN]
    assert less.faults.total() > 0
