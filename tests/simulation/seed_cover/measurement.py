"""Runs of seeds, and their time, faults, random parameters and branches.

``choice`` makes features of them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chaos.simulator.levels import Seed
from chaos.simulator.result import Result
from chaos.simulator.sweep import spread
from tests.simulation.seed_cover import branches


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
            yield from parameters(element, name)
    else:
        yield f"{name} {value}"
