"""Many seeds on the command line, and which seeds those are."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from zlib import crc32

from chaos.simulator.levels import Seed, seeds
from chaos.simulator.result import Result, Violation
from chaos.simulator.seed_choice import (
    WITHOUT_GIT,
    chosen,
    failed_before,
    failures,
    first_of_commit,
    remember,
)


def git(checkout: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(checkout), *names, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def result(name: str, *invariants: str) -> Result:
    return Result(
        name=name,
        faults=Counter(),
        acknowledged=0,
        violations=tuple(Violation(0.0, invariant, "") for invariant in invariants),
        simulated_s=0.0,
        trace=0,
        timeline="",
    )


def test_a_sweep_stops_when_its_time_is_up_and_says_what_was_run() -> None:
    command = [sys.executable, "-m", "chaos.simulator", "--seeds", "100000", "--minutes", "0.02"]
    end = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    began, *_, stopped, _, _, last = end.stdout.splitlines()
    total = 100_000 + len(failed_before())
    assert stopped == f"stopped after 0.02 minutes, before the last of {total} seeds"
    assert f"--first {first_of_commit().number}" in began
    assert 1 <= int(last.split()[0].removeprefix("seeds=")) < 100_000
    assert end.returncode == 0


def test_new_seeds_follow_from_the_commit(tmp_path: Path) -> None:
    assert first_of_commit(tmp_path).number == WITHOUT_GIT
    git(tmp_path, "init", "-q")
    assert first_of_commit(tmp_path).number == WITHOUT_GIT  # nothing is committed yet
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    one = first_of_commit(tmp_path)
    assert one.number == crc32(git(tmp_path, "rev-parse", "HEAD").encode())
    assert one.reason.removeprefix("commit ") == git(tmp_path, "rev-parse", "HEAD")[:10]
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "two")
    assert first_of_commit(tmp_path).number != one.number


def test_an_installed_copy_does_not_go_by_the_checkout_around_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "somebody else's")
    inside = tmp_path / "site-packages"
    inside.mkdir()
    assert first_of_commit(inside).number == WITHOUT_GIT


def test_every_sweep_begins_with_the_seeds_that_ever_failed() -> None:
    failed = failed_before()
    assert {"core:59", "log:107", "brokers:2103"} <= {str(seed) for seed in failed}
    assert len(failed) == len(set(failed))
    swept = list(chosen(0, 100))
    assert swept[: len(failed)] == failed
    assert set(swept[len(failed) :]) == {*seeds(0, 100)} - {*failed}
    assert len(swept) == len(set(swept))


def test_a_seed_that_fails_is_appended_once(tmp_path: Path) -> None:
    path = tmp_path / "failed_seeds.txt"
    path.write_text("# a comment\ncore:1 # seen long ago\n")
    lines = failures(
        [result("core:1", "I1"), result("log:2"), result("brokers:3", "I6 durable quorum", "L2")]
    )
    assert lines == ["core:1 # I1", "brokers:3 # I6 durable quorum"]
    assert remember(lines, path) == ["brokers:3 # I6 durable quorum"]
    assert remember(lines, path) == []
    assert failed_before(path) == [Seed("core", 1), Seed("brokers", 3)]
