"""Runs many seeds on all CPU cores, with results in the order of the seeds.

Decides: which process runs which seeds. A process runs a few seeds and then ends, since this is cheaper than
garbage collection.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar
from zlib import crc32

from verification.simulator.levels import BROKERS_LONG, CORE, GROUPS, LOG, Seed
from verification.simulator.result import Result

T = TypeVar("T")

WORK: Final = {CORE: 1, LOG: 1, GROUPS: 1, BROKERS_LONG: 40}
"""The relative durations of one seed of these levels."""
WORK_OF_BROKERS: Final = 12
"""The relative duration of one seed of any other level; they all run whole brokers."""
WORK_A_PROCESS: Final = 30


def sweep(seeds: Iterable[Seed], jobs: int) -> Iterator[Result]:
    """Run the seeds in ``jobs`` processes; yield their results in order."""
    return spread(_run, seeds, jobs)


def spread(work: Callable[[Seed], T], seeds: Iterable[Seed], jobs: int) -> Iterator[T]:
    """Call ``work`` for each seed, in ``jobs`` processes; yield the results in the order of the seeds."""
    if jobs == 1:
        yield from map(work, seeds)
        return
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for results in pool.imap(partial(_all, work), _pieces(seeds)):
            yield from results


def last_line(results: Sequence[Result]) -> str:
    """Return a summary of the results in one line, for scripts."""
    trace = 0
    for result in results:
        trace = crc32(f"{result.name} {result.trace}".encode(), trace)
    return (
        f"seeds={len(results)} "
        f"faults={sum(result.faults.total() for result in results)} "
        f"acknowledged={sum(result.acknowledged for result in results)} "
        f"violations={sum(len(result.violations) for result in results)} "
        f"simulated_hours={sum(result.simulated_s for result in results) / 3600:.2f} "
        f"trace={trace:08x}"
    )


def _pieces(seeds: Iterable[Seed]) -> Iterator[list[Seed]]:
    piece: list[Seed] = []
    work = 0
    for seed in seeds:
        piece.append(seed)
        work += WORK.get(seed.level, WORK_OF_BROKERS)
        if work >= WORK_A_PROCESS:
            yield piece
            piece, work = [], 0
    if piece:
        yield piece


def _run(seed: Seed) -> Result:
    return seed.run()


def _all(work: Callable[[Seed], T], seeds: list[Seed]) -> list[T]:
    gc.disable()
    return [work(seed) for seed in seeds]
