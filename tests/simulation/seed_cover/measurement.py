"""Runs of seeds, and their time, faults, random parameters and branches.

``choice`` makes features of them.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.seed_cover import branches
from verification.simulator.levels import MIX, Seed
from verification.simulator.odds import Odds
from verification.simulator.raft_level.odds import CoreOdds
from verification.simulator.reach import fault_kinds, world_of
from verification.simulator.result import Result
from verification.simulator.sweep import spread


@dataclass(frozen=True, slots=True)
class Run:
    """One seed's run: its time, its checksum, and what it reached. ``branches`` are numbers."""

    seed: Seed
    cpu_s: float
    trace: int
    faults: dict[str, int]
    parameters: frozenset[str]
    branches: tuple[int, ...]
    violations: int


def measured(seeds: Iterable[Seed], jobs: int) -> Iterator[Run]:
    """Run these seeds, in their order. The source must be instrumented."""
    return spread(_run, seeds, jobs)


def rare(runs: Sequence[Run], wanted: int = 4, more: int = 8) -> list[Seed]:
    """Further seeds for each kind of fault that fewer runs had: some that draw it with a high probability."""
    had = Counter(
        (world_of(run.seed.level), kind) for run in runs for kind, count in run.faults.items() if count
    )
    numbers = {level: [run.seed.number for run in runs if run.seed.level == level] for level in MIX}
    last = {level: max(filter(len(runs).__ge__, known), default=0) for level, known in numbers.items()}
    found = dict[Seed, None]()
    for world, kinds in fault_kinds().items():
        for kind in (kind for kind in sorted(kinds) if had[world, kind] < wanted):
            levels = [level for level in last if world_of(level) == world]
            seeds = [Seed(level, last[level] + number) for number in range(1, 100) for level in levels]
            seeds.sort(key=lambda seed: -_chance(seed, kind))
            found |= dict.fromkeys(seed for seed in seeds[:more] if _chance(seed, kind))
    return list(found)


def _chance(seed: Seed, kind: str) -> float:
    odds = seed.odds()
    if not isinstance(odds, Odds | CoreOdds):
        return 0.0
    timed = (
        odds.timed.get(kind, 0.0) if isinstance(odds, CoreOdds) else odds.timed.count(kind) / len(odds.timed)
    )
    return max(timed, odds.aimed.get(kind, 0.0))


def _run(seed: Seed) -> Run:
    branches.taken()
    began = time.process_time()
    result: Result = seed.run()
    return Run(
        seed=seed,
        cpu_s=time.process_time() - began,
        trace=result.trace,
        faults=dict(result.faults),
        parameters=frozenset(parameters(seed.odds())),
        branches=tuple(branches.taken()),
        violations=len(result.violations),
    )


def parameters(value: object, name: str = "") -> Iterator[str]:
    """Names and values of random parameters: elements of lists, kinds with a probability above zero."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from parameters(getattr(value, field.name), f"{name}.{field.name}".removeprefix("."))
    elif isinstance(value, dict):
        yield from (f"{name} {key}" for key, chance in value.items() if chance)
    elif isinstance(value, tuple):
        for element in value:
            scenario = f"{name}.{type(element).__name__}" if dataclasses.is_dataclass(element) else name
            yield from parameters(element, scenario)
    else:
        yield f"{name} {value}"
