"""Planted bugs apply, and the search for them (``python -m tests.simulation.mutants``) can fail."""

from __future__ import annotations

import os
import time

import pytest

from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.helpers.planted_bugs import Mutant, NotPlanted, planted
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.hunt import Catch, hunt, known, look, search, verdict

QUORUM = ("raftlog.core.quorum:quorum_size", "return voter_count // 2 + 1")
WRONG = Mutant("wins with one vote less", *QUORUM, "return max(1, voter_count // 2)")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_planted_bug_still_applies(mutant: Mutant) -> None:
    with planted(mutant):
        pass


def test_a_bug_that_no_longer_applies_fails_loudly() -> None:
    gone = Mutant("gone", "raftlog.core.quorum:quorum_size", "no such text", "")
    with pytest.raises(NotPlanted), planted(gone):
        pass


def test_names_of_planted_bugs_are_unique() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(known()) <= set(names)


def test_a_bug_is_seen_by_what_saw_it_before_and_not_without_it() -> None:
    catch = hunt(WRONG, Catch("brokers:0", "", 0.0))
    assert catch is not None
    assert catch.seed == "brokers:0"
    assert catch.invariant in ("I2 one leader a term", "I4 leader completeness")  # the first of the two
    assert look("brokers:0") is None


def test_the_search_fails_when_a_bug_is_missed_or_something_is_seen_without_a_bug() -> None:
    cannot_matter = Mutant("equal", *QUORUM, "return voter_count // 2 + 1", equivalent="it is the same")
    caught = {WRONG.name: Catch("brokers:0", "I2", 0.1)}
    assert verdict([WRONG, cannot_matter], caught, []) == []
    assert verdict([WRONG, cannot_matter], {}, []) == ["missed: wins with one vote less"]
    assert verdict([WRONG], caught, ["core:1: I2"]) == ["seen without a bug: core:1: I2"]


def test_scripts_see_bugs_in_processes_of_their_own_and_nothing_without_a_bug() -> None:
    some = [mutant for mutant in MUTANTS if mutant.script == "tests/unit/storage/test_slots.py"][:2]
    names = [mutant.name for mutant in some]
    assert len(names) == 2

    def searched() -> tuple[list[str], list[str]]:
        caught, alarms = search(some, {}, (), 2)
        return sorted(caught), alarms

    assert dict(forked([("search", searched)], 1, 60.0)) == {"search": (sorted(names), [])}


def test_scripts_that_cannot_be_collected_fail_loudly() -> None:
    def searched() -> str:
        try:
            CollectedTests(["tests/unit/storage/test_no_such.py"]).during(lambda: None)
        except RuntimeError as error:
            return str(error)
        return ""

    [(_, said)] = forked([("collect", searched)], 1, 60.0)
    assert said is not None
    assert "test_no_such.py" in said


def test_work_whose_process_dies_or_hangs_has_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    def raises() -> str:
        raise RuntimeError("on purpose")

    work = [
        ("dies", lambda: os._exit(1)),
        ("hangs", lambda: time.sleep(60)),
        ("raises", raises),
        *((str(number), lambda number=number: f"{number}!") for number in range(5)),
    ]
    found = dict(forked(work, 2, 1.0))
    assert found == {"dies": None, "hangs": None, "raises": None, **{str(n): f"{n}!" for n in range(5)}}
    assert "on purpose" in capfd.readouterr().err
