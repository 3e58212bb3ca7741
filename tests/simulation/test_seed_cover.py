"""The choice of the fixed seeds: branches that are recorded, and a cover that is cheap."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from raftlog.__main__ import OURS
from tests.simulation.seed_cover.choice import (
    CHECKER,
    FAULT,
    INJECTION,
    LEVEL,
    MAGNITUDE,
    PARAMETER,
    PRODUCTION,
    Feature,
    by_hand,
    choose,
    features,
    table,
    text,
)
from tests.simulation.seed_cover.measurement import Run, parameters, rare
from verification.simulator.levels import BROKERS, CORE, LOG, MIX, Seed
from verification.simulator.odds import Odds
from verification.simulator.reach import fault_kinds, world_of
from verification.simulator.seed_choice import listed

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
def sign(number):
    """Text."""
    if number < 0:
        return -1
    for _ in range(number):
        return 1
    return 0


class Late:
    async def wait(self, kind):
        try:
            match kind:
                case "a":
                    raise ValueError(kind)
                case _:
                    pass
        except ValueError:
            while True:
                break
'''
PROGRAM = """
import asyncio
from tests.simulation.seed_cover import branches
branches.instrument(["small"])
from small.numbers import Late, sign
branches.taken()
for work in (lambda: sign(-3), lambda: sign(0), lambda: sign(2), lambda: asyncio.run(Late().wait("a"))):
    work()
    print(*(branches.NAMES[number].partition(":")[2] for number in branches.taken()), sep=", ")
print(sign.__doc__)
"""


def run(seed: Seed, cpu_s: float, *, faults: Iterable[str] = (), violations: int = 0) -> Run:
    return Run(seed, cpu_s, 0, dict.fromkeys(faults, 3), frozenset(), (), violations)


def reaches(*names: str) -> frozenset[Feature]:
    return frozenset((PRODUCTION, name) for name in names)


def chosen(
    costs: list[float],
    reached: list[frozenset[Feature]],
    failed: frozenset[int] = frozenset(),
) -> list[int]:
    runs = [run(Seed(CORE, number), cost) for number, cost in enumerate(costs)]
    return [each.run.seed.number for each in choose(runs, reached, failed)]


def test_branches_are_recorded_for_each_run_alone(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "__init__.py").touch()
    (tmp_path / "small" / "numbers.py").write_text(SOURCE)
    end = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = ['.', {str(ROOT)!r}]\n{PROGRAM}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert end.stdout.splitlines() == [
        "5 if, 2 def",
        "4 else, 2 def",
        "4 else, 7 for, 2 def",
        "16 case, 21 while, 20 except, 12 def",
        "Text.",
    ], end.stderr


def test_the_chooser_imports_nothing_that_gets_flags() -> None:
    program = "import sys; from tests.simulation.seed_cover.__main__ import PRODUCTION, INSTRUMENTED"
    shown = "print(*PRODUCTION); print(*(name for name in INSTRUMENTED if name in sys.modules))"
    end = subprocess.run(
        [sys.executable, "-c", f"{program}; {shown}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    production, too_early = end.stdout.splitlines()
    assert {*production.split()} == {"raftlog", *OURS} - {"chaos"}
    assert too_early == ""


def test_the_cheapest_seeds_that_reach_everything_are_chosen() -> None:
    reached = [reaches("a", "b", "c"), reaches("a", "b"), reaches("c"), reaches("c")]
    assert chosen([9.0, 1.0, 5.0, 1.0], reached) == [1, 3]


def test_a_seed_that_later_ones_make_needless_is_removed() -> None:
    reached = [reaches("a", "b", "c"), reaches("a", "b", "d"), reaches("c", "e")]
    assert {*chosen([1.0, 1.5, 1.5], reached)} == {1, 2}


def test_each_kind_of_fault_is_reached_by_two_seeds_and_other_features_by_one() -> None:
    a_fault = frozenset({(FAULT, "brokers: kill")})
    reached = [reaches("a", "b", "c") | a_fault, reaches("a", "b", "c"), *[a_fault] * 3]
    assert chosen([1.0, 1.0, 1.1, 1.0, 1.2], reached) == [0, 3]


def test_what_failed_seeds_reach_needs_no_other_seed() -> None:
    reached = [reaches("a", "b"), reaches("a"), reaches("c")]
    assert chosen([1.0, 1.0, 1.0], reached, frozenset({0})) == [2]


def test_seeds_with_a_violation_are_not_chosen() -> None:
    runs = [run(Seed(CORE, 0), 1.0, violations=1), run(Seed(CORE, 1), 9.0)]
    found = choose(runs, [reaches("a"), reaches("a")], frozenset())
    assert [each.run.seed.number for each in found] == [1]


def test_features_are_levels_faults_by_magnitude_parameters_and_branches() -> None:
    names = [
        "raftlog/core/raft.py:1 if",
        "verification/simulator/checker.py:2 def",
        "verification/simulator/faults.py:3 if",
    ]
    one = Run(Seed("http", 1), 1.0, 0, {"kill": 5}, frozenset({"brokers 3"}), (0, 1, 2), 0)
    many = [Run(Seed(LOG, place), 1.0, 0, {}, frozenset({f"steps {place}"}), (), 0) for place in range(20)]
    reached, *_ = features([one, *many], names)
    assert reached == {
        (LEVEL, "http"),
        (FAULT, f"{BROKERS}: kill"),
        (MAGNITUDE, f"{BROKERS}: kill x3"),
        (PARAMETER, f"{BROKERS}: brokers 3"),
        (PRODUCTION, names[0]),
        (CHECKER, names[1]),
        (INJECTION, names[2]),
    }
    assert features([one, *many], names)[1] == {(LEVEL, LOG)}  # a parameter with twenty values is a number


def test_random_parameters_of_every_world_have_names() -> None:
    assert any(each.startswith("works append") for each in parameters(Seed(LOG, 3).odds()))
    drawn = {*parameters(Seed("brokers-queue", 1).odds())}
    assert any(each.startswith("scenarios.QueueOdds.partitions ") for each in drawn)
    assert any(each.startswith("timed ") for each in drawn)
    assert "settings.unused_ms None" in drawn


def test_more_seeds_are_run_that_draw_a_rare_kind_of_fault() -> None:
    kinds = fault_kinds()
    runs = [run(Seed(CORE, 3), 1.0, faults=kinds[CORE])] * 4
    for level in {*MIX} - {CORE}:
        usual = kinds[world_of(level)] - {"after a lease"}
        runs += [run(Seed(level, number), 1.0, faults=usual) for number in (5, 123_456_789)]
    seeds = rare(runs, wanted=2)
    assert len(seeds) == 8
    assert all(seed.number > 5 and seed not in [each.seed for each in runs] for seed in seeds)
    assert {world_of(seed.level) for seed in seeds} == {BROKERS}
    for seed in seeds:
        odds = seed.odds()
        assert isinstance(odds, Odds)
        assert odds.aimed["after a lease"] > 0


def test_the_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    rng, seeds = random.Random(3), [Seed(CORE, 4), Seed(BROKERS, 12), Seed(BROKERS, 3)]
    reached = [reaches(*rng.sample("abcdefg", 4)) for _ in seeds]
    found = choose([run(seed, 1.0) for seed in seeds], reached, frozenset())
    path = tmp_path / "fixed_seeds.txt"
    kept = {Seed(BROKERS, 7): "a leader that adds nothing"}
    path.write_text(text(found, "Words.\nMore words.", kept))
    assert path.read_text().startswith("# Words.\n# More words.\nbrokers:3 # ")
    assert sorted(listed(path), key=str) == sorted((*kept, *(each.run.seed for each in found)), key=str)
    assert by_hand(path.read_text()) == kept
    assert table(reached, [0])[PRODUCTION] == (len(frozenset.union(*reached)), 4, 0)
