"""A mutant that a test sees is reported as seen, and one that no test sees as a survivor."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.mutation import __main__ as command
from tests.mutation import covering
from tests.mutation.covering import CoveringTests, record
from tests.mutation.functions import Mutant, Planter, Source, changed_lines
from tests.mutation.verdicts import Judge, Verdict

MODULE = """
import functools
import os
import time


class Counter:
    @functools.cached_property
    def size(self):
        return 1 + 2

    @property
    def is_empty(self) -> bool:
        return self.size < 1


def ends():
    while True:
        break


def wakes():
    time.sleep(0 * 60)


def stays():
    if not True:
        os._exit(0)


def unseen(values):
    values.sort()
    return values
"""
TESTS = """
import counting

def test_size():
    assert counting.Counter().size == 3

def test_is_empty():
    assert not counting.Counter().is_empty

def test_ends():
    counting.ends()

def test_wakes():
    counting.wakes()

def test_stays():
    counting.stays()

def test_unseen():
    assert counting.unseen([1, 2]) == [1, 2]
"""
EXPECTED = {
    "Counter.size: return 2 + 2": ("seen", "test_size", "failed"),
    "Counter.is_empty: return True": ("seen", "test_is_empty", "failed"),
    "ends: pass": ("seen", "test_ends", "hung"),  # it uses its time
    "wakes: time.sleep(1 * 60)": ("seen", "test_wakes", "hung"),  # it waits
    "stays: if True:": ("seen", "test_stays", "died"),
    "unseen: return None": ("seen", "test_unseen", "failed"),
    "unseen: pass": ("survived", "", ""),
}


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[], dict[str, Verdict]]:
    """Judges the expected mutants of the module, in a process of its own."""
    (tmp_path / "counting.py").write_text(MODULE)
    (tmp_path / "test_counting.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run() -> dict[str, Verdict]:
        sys.path.insert(0, str(tmp_path))
        importlib.import_module("counting")
        tests = CollectedTests([str(tmp_path / "test_counting.py")])
        found: dict[str, Verdict] = {}
        source = Source(tmp_path, "counting.py")

        def judge_all() -> None:
            all_lines = (2 << source.file.read_text().count("\n")) - 1
            lines = {name: {"counting.py": all_lines} for name in tests.names()}
            seconds = dict.fromkeys(lines, 0.01)
            covered = CoveringTests([covering.Covered({}, seconds, lines)])
            judge = Judge(tests, covered, Planter(), cpu_s=5.0)
            for mutant in source.mutants():
                name = f"{mutant.function}: {mutant.texts()[1]}"
                if name in EXPECTED:
                    waits = mutant.function == "wakes"  # the other limits are generous, for a busy machine
                    found[name] = (replace(judge, clock_s=3.0) if waits else judge).judge(mutant)

        tests.during(judge_all)
        return found

    def in_process() -> dict[str, Verdict]:
        [(_, verdicts)] = forked([("judge", run)], 1, 280.0)
        assert verdicts is not None
        return verdicts

    return in_process


def test_verdicts_say_which_test_has_seen_a_mutant_and_how(
    judged: Callable[[], dict[str, Verdict]],
) -> None:
    found = {
        name: (verdict.outcome, verdict.seen_by.partition("::")[2], verdict.how)
        for name, verdict in judged().items()
    }
    assert found == EXPECTED


def test_recorded_lines_name_the_tests_that_run_them_until_a_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, source = "tests/unit/core/test_writes.py", "raftlog/core/writes.py"
    text = (covering.ROOT / source).read_text().splitlines()
    [line] = [number for number, each in enumerate(text, start=1) if "def hold_back" in each]

    def recorded() -> tuple[list[str], list[str], int]:
        monkeypatch.setattr(covering, "STORED", tmp_path)
        tests = CollectedTests([file])
        said, found = list[str](), list[list[str]]()

        def run() -> None:
            for _ in range(2):
                covered = list(record(tests, [file], 1, said.append))
                found.append(CoveringTests(covered).of(source, line + 1, line + 12))

        tests.during(run)
        return found[0], found[1], len(said)

    [(_, result)] = forked([("record", recorded)], 1, 280.0)
    assert result is not None
    first, again, runs = result
    assert f"{file}::test_a_promise_waits_for_the_term_even_if_its_entries_are_durable" in first
    assert sorted(again) == sorted(first)
    assert runs == 1


def test_functions_with_a_changed_line_are_found(tmp_path: Path) -> None:
    covering_git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "package").mkdir()
    place = tmp_path / "package" / "module.py"
    place.write_text("def first(a):\n    return a\n\n\ndef second(a):\n    return a\n")
    covering_git(tmp_path, "add", ".")
    covering_git(tmp_path, "commit", "-q", "-m", "first")
    place.write_text(place.read_text().replace("second(a):\n    return a", "second(a):\n    return a + a"))
    lines = changed_lines(tmp_path, "main", ["package"])
    assert lines == {"package/module.py": frozenset({6})}
    found = [each.function for each in Source(tmp_path, "package/module.py").mutants(frozenset({6}))]
    assert set(found) == {"second"}


def covering_git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    command.subprocess.run(["git", "-C", str(folder), *name, *arguments], check=True)


def test_the_command_ends_with_1_only_for_its_own_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--package", "no/such"]) == 1
    assert command.main(["--changed", "no-such-commit"]) == 1
    asked: list[int] = []

    def search(mutants: list[Mutant], wanted: int, paths: list[str], jobs: int) -> None:
        asked.append(wanted)

    monkeypatch.setattr(command, "search", search)
    assert command.main(["--package", "raftlog/core/quorum.py", "--sample", "5", "--seed", "7"]) == 0
    assert asked == [5]
    assert "drawn with seed 7" in capsys.readouterr().out
