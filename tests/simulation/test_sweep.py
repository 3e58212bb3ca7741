"""Many seeds on the command line, and the lists that they come from."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from zlib import crc32

import pytest

from verification.simulator import __main__ as command_line
from verification.simulator.exploration import SHARES, WHOLE, drawn_first, fresh
from verification.simulator.group_level import life
from verification.simulator.levels import BROKERS, BROKERS_LONG, CORE, GROUPS, LOG, MIX, Seed, seeds
from verification.simulator.odds import Odds
from verification.simulator.raft_level.odds import CoreOdds
from verification.simulator.reach import fault_kinds, unreached, world_of
from verification.simulator.result import Result, Violation
from verification.simulator.scenarios.hosts.odds import CUT, RESTORED, HostOdds
from verification.simulator.scenarios.transactions.odds import TransactionOdds
from verification.simulator.scenarios.transactions.wide import NEAR, REFUSED
from verification.simulator.seed_choice import (
    FIXED_SEEDS,
    WITHOUT_GIT,
    First,
    chosen,
    errors_before,
    failed_before,
    failures,
    false_alarms,
    first_of_commit,
    fixed,
    listed,
    remember,
)
from verification.simulator.share import ROUND_S


def git(checkout: Path, *arguments: str) -> str:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(checkout), *names, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def result(name: str, *invariants: str, faults: Mapping[str, int] | None = None) -> Result:
    return Result(
        name=name,
        faults=Counter(faults),
        acknowledged=0,
        violations=tuple(Violation(0.0, invariant, "") for invariant in invariants),
        simulated_s=0.0,
        trace=0,
        timeline="",
    )


def test_an_exploration_stops_when_its_time_is_over_and_names_its_first_seed() -> None:
    options = ["--explore", "--minutes", "0.01", "--first", "7", "--jobs", "1"]
    command = [sys.executable, "-m", "verification.simulator", *options]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    began, *_, seeds_run, last = end.stdout.splitlines()
    assert end.returncode == 0
    assert began.startswith("fresh seeds from 7 on (as asked) for 0.01 minutes")
    assert began.endswith("to repeat: make explore FIRST=7")
    assert seeds_run.startswith("seeds: brokers")
    assert 1 <= int(last.split()[0].removeprefix("seeds=")) < 100


def test_each_exploration_begins_at_a_number_of_its_own() -> None:
    assert len({drawn_first().number for _ in range(10)}) == 10


def test_fresh_seeds_are_of_all_levels_whole_brokers_first_and_never_twice() -> None:
    a_round = sum(share.seeds_a_round for share in SHARES.values())
    some = list(islice(fresh(100), 3 * a_round))
    assert some == list(islice(fresh(100), 3 * a_round))
    assert len(set(some)) == len(some)
    assert {seed.level for seed in some} == {*MIX, BROKERS_LONG}
    first = some[:a_round]
    of_brokers = [world_of(seed.level) == BROKERS for seed in first]
    assert of_brokers == sorted(of_brokers, reverse=True)
    assert {seed.level for seed in first[:60]} >= {*MIX} - {CORE, LOG, GROUPS}
    assert min(seed.number for seed in some) == 100


def test_most_of_the_time_of_an_exploration_is_for_whole_brokers() -> None:
    assert sum(share.percent for share in SHARES.values()) == 100
    assert sum(SHARES[level].percent for level in WHOLE) >= 80
    spent_s = {level: share.seeds_a_round * share.seed_s for level, share in SHARES.items()}
    for level, share in SHARES.items():
        assert abs(spent_s[level] - share.percent * ROUND_S / 100) <= max(share.seed_s, 0.5)


def test_the_fixed_run_is_the_failed_seeds_and_the_fixed_list_in_the_same_order() -> None:
    assert fixed()[: len(errors_before())] == errors_before()
    assert fixed() == list(dict.fromkeys((*errors_before(), *listed(FIXED_SEEDS))))


def test_a_failed_seed_is_an_error_unless_it_says_that_it_is_a_false_alarm(tmp_path: Path) -> None:
    path = tmp_path / "failed_seeds.txt"
    failed = ("core:1 # L2: lost", "core:2 # false alarm, L7", "log:3", "core:4 # A3; A5, a false alarm")
    path.write_text("\n".join(("# words", *failed, "log:5 # no error is known")))
    assert failed_before(path) == [Seed(CORE, 1), Seed(CORE, 2), Seed(LOG, 3), Seed(CORE, 4), Seed(LOG, 5)]
    assert errors_before(path) == [Seed(CORE, 1), Seed(LOG, 3), Seed(CORE, 4)]
    assert false_alarms(path) == [Seed(CORE, 2), Seed(LOG, 5)]


def test_an_exploration_begins_with_the_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Seed] = []

    def none_run(seeds: Iterable[Seed], jobs: int) -> Iterable[Result]:
        swept.extend(islice(seeds, 3))
        return ()

    monkeypatch.setattr(command_line, "sweep", none_run)
    monkeypatch.setattr(command_line, "false_alarms", lambda: [Seed(CORE, 8), Seed(LOG, 9)])
    assert command_line.explore(First(7, "as asked"), 1, 1.0, remembers=False) == 0
    assert swept == [Seed(CORE, 8), Seed(LOG, 9), next(fresh(7))]


def test_the_fixed_run_has_every_level_twice_and_draws_every_kind_of_fault_twice() -> None:
    levels = Counter(seed.level for seed in fixed())
    assert [level for level in dict.fromkeys(MIX) if levels[level] < 2] == []
    drawn = Counter((world_of(seed.level), kind) for seed in fixed() for kind in drawn_faults(seed))
    kinds = fault_kinds()
    wanted = [(world, kind) for world in (BROKERS, CORE) for kind in kinds[world]]
    assert [each for each in wanted if drawn[each] < 2] == []


def drawn_faults(seed: Seed) -> set[str]:
    """Kinds that a seed may inject. Logs and coordinators alone draw from all kinds in every run."""
    odds = seed.odds()
    if not isinstance(odds, Odds | CoreOdds):
        return set()
    hosts = odds.of(HostOdds) if isinstance(odds, Odds) else None
    in_the_end = {} if hosts is None else {CUT: hosts.cuts, RESTORED: bool(hosts.restores)}
    later = {kind for kind, is_drawn in in_the_end.items() if is_drawn}
    transactions = odds.of(TransactionOdds) if isinstance(odds, Odds) else None
    wide = {NEAR, REFUSED} if transactions is not None and transactions.wide is not None else set[str]()
    return {*odds.timed, *(kind for kind, chance in odds.aimed.items() if chance), *later, *wide}


def test_kinds_of_faults_that_are_drawn_can_be_injected() -> None:
    kinds = fault_kinds()
    for seed in seeds(0, 2000):
        world = world_of(seed.level)
        requests = {"change membership", "cut prefix"} if world == CORE else set()
        assert drawn_faults(seed) - requests <= kinds[world], seed
    assert {*life.FAULTS} < kinds[GROUPS]


def test_runs_that_miss_a_level_or_a_kind_of_fault_are_told_so() -> None:
    kinds = fault_kinds()
    levels = list(dict.fromkeys(MIX))
    complete = [result(f"{level}:1", faults=dict.fromkeys(kinds[world_of(level)], 1)) for level in levels]
    assert unreached(complete) == []
    assert unreached(each for each in complete if each.name != "http:1") == ["level http"]
    without = [
        result(each.name, faults={**each.faults, "kill": 0, "wipe": 0} if "br" in each.name else each.faults)
        for each in complete
        if each.name not in ("http:1", "core:1")
    ]
    missing = unreached([*without, result("core:1", faults={"crash": 3})])
    assert missing[:2] == ["level http", "brokers: kill"]
    assert "core: wipe" in missing
    assert "core: crash" not in missing


def test_a_fixed_run_that_reaches_too_little_fails_and_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "fixed", lambda: [Seed(GROUPS, 0), Seed(LOG, 0)])
    assert command_line.run_fixed(jobs=1) == 1
    *_, missing, last = capsys.readouterr().out.splitlines()
    assert missing.startswith("the fixed seeds no longer reach: level brokers, level core, ")
    assert missing.endswith("; choose them again with: python -m tests.simulation.seed_cover")
    assert last.startswith("seeds=2 ")


def test_a_violation_of_a_fixed_seed_fails_the_run_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = result("http:99999999", "I1")
    monkeypatch.setattr(command_line, "sweep", lambda seeds, jobs: iter([failed]))
    monkeypatch.setattr(command_line, "unreached", lambda results: [])
    assert command_line.run_fixed(jobs=1) == 1
    text = capsys.readouterr().out
    assert "make sim SEED=http:99999999 SHRINK=1" in text
    assert "http:99999999 # I1" in text


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
