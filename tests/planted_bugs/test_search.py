"""The search for planted bugs (``python -m tests.planted_bugs``) finds what is wrong with them."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.helpers.planted_bugs import Edit, NotPlanted, planted
from tests.planted_bugs.bug import PlantedBug
from tests.planted_bugs.search import search

QUORUM = Edit(
    "raftlog.core.quorum:quorum_size", "return voter_count // 2 + 1", "return max(1, voter_count // 2)"
)
ONE_VOTE_TOO_FEW = PlantedBug(
    "wins with one vote too few", "I2", QUORUM.place, QUORUM.text, QUORUM.planted, seen_by="core:0"
)
HARMLESS = replace(ONE_VOTE_TOO_FEW, name="changes nothing", planted="return 1 + voter_count // 2")


def searched(*bugs: PlantedBug) -> list[str]:
    """The errors that a search in a process of its own finds."""
    [(_, wrong)] = forked([("search", lambda: search(bugs, 2))], 1, 300.0)
    assert wrong is not None
    return wrong


def test_a_bug_that_its_seed_sees_is_in_order() -> None:
    assert searched(ONE_VOTE_TOO_FEW) == []


def test_a_bug_that_its_seed_does_not_see_is_wrong() -> None:
    assert searched(HARMLESS) == ["not seen: changes nothing: core:0"]


def test_a_test_sees_a_bug_in_a_process_of_its_own() -> None:
    by_test = replace(ONE_VOTE_TOO_FEW, seen_by="tests/paper/test_raft_elections.py")
    assert searched(by_test) == []
    assert searched(replace(by_test, name="harmless", planted=HARMLESS.planted)) == [
        "not seen: harmless: tests/paper/test_raft_elections.py"
    ]


def test_an_edit_that_no_longer_applies_is_wrong() -> None:
    gone = replace(ONE_VOTE_TOO_FEW, name="gone", text="no such text")
    (wrong,) = searched(gone)
    assert wrong.startswith("not planted: gone: 'no such text' occurs 0 times in")
    with pytest.raises(NotPlanted), planted(*gone.edits):
        pass


def test_tests_that_cannot_be_collected_are_an_error() -> None:
    def collected() -> str:
        try:
            CollectedTests(["tests/unit/storage/test_no_such.py"]).during(lambda: None)
        except RuntimeError as error:
            return str(error)
        return ""

    [(_, message)] = forked([("collect", collected)], 1, 60.0)
    assert message is not None
    assert "test_no_such.py" in message


def test_work_whose_process_dies_or_hangs_has_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    def raises() -> str:
        raise RuntimeError("on purpose")

    work = [
        ("dies", lambda: os._exit(1)),
        ("raises", raises),
        *((str(number), lambda number=number: f"{number}!") for number in range(5)),
    ]
    assert dict(forked(work, 2, 300.0)) == {
        "dies": None,
        "raises": None,
        **{str(n): f"{n}!" for n in range(5)},
    }
    assert "on purpose" in capfd.readouterr().err
    assert dict(forked([("hangs", lambda: time.sleep(300))], 1, 0.1)) == {"hangs": None}
