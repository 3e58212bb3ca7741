"""Figures of the scoreboard stand for a commit, and pieces of a long run add up."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.long_runs import (
    BEHIND_SWEEPS,
    Piece,
    composed,
    go_on,
    is_kept,
    is_reached,
    since_violation,
    sources_of,
    wanted,
)
from bench.mutant_scores import Score, section, stored
from bench.reliability import DOCUMENT, FIGURES, RESULTS, Row, page, uncommitted
from verification.simulator.levels import BROKERS, BROKERS_LONG, CORE, LOG

SOURCES = "0000000a"


def git(checkout: Path, *arguments: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(checkout), *names, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    for name in ("raftlog/core.py", "docs/index.md", "reliability.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("one\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_the_page_is_made_from_the_stored_figures() -> None:
    rows = msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, Row])
    assert page(rows) == DOCUMENT.read_text()


def test_only_a_clean_checkout_is_measured(checkout: Path) -> None:
    assert uncommitted(checkout) == []
    (checkout / "reliability.json").write_text("what measuring writes\n")
    assert uncommitted(checkout) == []
    (checkout / "raftlog" / "core.py").write_text("two\n")
    assert uncommitted(checkout) == [" M raftlog/core.py"]
    git(checkout, "commit", "-aqm", "two")
    (checkout / "raftlog" / "new.py").write_text("not added\n")
    assert uncommitted(checkout) == ["?? raftlog/new.py"]


def test_without_a_commit_nothing_is_measured(tmp_path: Path) -> None:
    assert uncommitted(tmp_path)


def test_what_measuring_writes_is_there() -> None:
    root = Path(__file__).resolve().parents[3]
    assert all(list(root.glob(path)) for path in RESULTS)


def test_code_is_the_same_whatever_happens_to_documents(checkout: Path) -> None:
    before = sources_of(checkout)
    (checkout / "docs" / "index.md").write_text("two\n")
    git(checkout, "commit", "-aqm", "a document")
    assert sources_of(checkout) == before
    (checkout / "raftlog" / "core.py").write_text("two\n")
    git(checkout, "commit", "-aqm", "code")
    assert sources_of(checkout) != before


def run(known: list[Piece], *pieces: tuple[str, int], sources: str = SOURCES) -> list[Piece]:
    *_, found = go_on(known, pieces, sources=sources, commit="c", date="d", jobs=1)
    return found


def test_each_piece_goes_on_behind_the_last_of_its_level() -> None:
    first = run([], (LOG, 3), (CORE, 1))
    assert [(piece.level, piece.first, piece.seeds) for piece in first] == [
        (LOG, BEHIND_SWEEPS + 10, 3),
        (CORE, BEHIND_SWEEPS + 10, 1),
    ]
    again = run(first, (LOG, 2))
    assert again[:2] == first
    assert (again[2].first, again[2].seeds) == (BEHIND_SWEEPS + 13, 2)
    figures = composed(again)
    assert figures["seeds of logs alone"] == f"5, the first is log:{BEHIND_SWEEPS + 10}"
    assert figures["counted: faults"] == sum(piece.faults for piece in again)


def test_hours_add_up_over_commits_until_something_is_violated() -> None:
    first = run([], (LOG, 3))
    later = run(first, (LOG, 1), sources="0000000b")
    assert later[:1] == first
    assert later[1].first == BEHIND_SWEEPS + 13
    broken = [*later, replace(PIECE, violations=1, failed="core:7 # I6", sources="0000000c")]
    assert since_violation([*broken, *later], "0000000d") == later
    assert since_violation([*broken, *later], "0000000c") == [*broken, *later]  # it is not repaired
    assert run(broken, (LOG, 1), sources="0000000d")[0].first == BEHIND_SWEEPS + 13


PIECE = Piece(
    level=CORE,
    first=0,
    seeds=1,
    hours=900.0,
    faults=5,
    acknowledged=1,
    violations=0,
    failed="",
    seconds=1.0,
    sources=SOURCES,
    commit="c",
    date="d",
)


def test_hours_with_quiet_phases_are_shown_and_not_counted() -> None:
    quiet = replace(PIECE, level=BROKERS_LONG, hours=500.0)
    brokers = replace(PIECE, level=BROKERS, hours=100.0)
    assert not is_reached([PIECE, quiet])
    assert not is_reached([PIECE, replace(brokers, hours=99.0), quiet])
    assert is_reached([PIECE, brokers])
    figures = composed([PIECE, brokers, quiet])
    assert figures["counted: simulated hours"] == 1000.0
    assert figures["simulated hours of whole brokers with quiet phases, not counted"] == 500.0


def test_a_violation_in_any_piece_stays_in_the_figures() -> None:
    brokers = replace(PIECE, level=BROKERS, hours=100.0)
    broken = replace(PIECE, level=BROKERS_LONG, violations=2, failed="brokers-long:7 # I6")
    assert is_kept([PIECE, brokers])
    assert not is_kept([PIECE, brokers, broken])
    assert composed([PIECE, broken])["seeds with violations"] == "brokers-long:7 # I6"


def test_a_piece_is_asked_for_by_level_and_number() -> None:
    assert wanted("brokers-long:40") == (BROKERS_LONG, 40)
    with pytest.raises(ValueError, match="give a level and a number of seeds"):
        wanted("40")


def test_scores_of_mutants_leave_out_equivalent_ones() -> None:
    score = Score("raftlog/core", mutants=2208, tried=20, seen=15, equivalent=2, seed=1, commit="c")
    assert section([score])[-1] == "| `raftlog/core` | 2,208 | 20 | 15 | 5 | 2 | 83 % | c, 1 |"
    assert stored()
