"""Many seeds on all cores, with results in the order of the seeds.

Decides: which process runs which seeds. A process runs a few seeds and ends, which is cheaper than
garbage collection.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

from chaos.simulator.levels import (
    BROKERS,
    BROKERS_COMPACTED,
    BROKERS_DELAYED,
    BROKERS_DELETING,
    BROKERS_GROUP,
    BROKERS_HEALING,
    BROKERS_LONG,
    BROKERS_TRANSACTIONS,
    HTTP,
    Seed,
)
from chaos.simulator.result import Result

WORK: Final = {
    BROKERS: 8,
    BROKERS_GROUP: 8,
    BROKERS_COMPACTED: 8,
    BROKERS_DELETING: 8,
    BROKERS_DELAYED: 16,
    BROKERS_TRANSACTIONS: 16,
    BROKERS_HEALING: 16,
    BROKERS_LONG: 40,
    HTTP: 16,
}
"""The duration of a seed of these levels, relative to other levels."""
WORK_A_PROCESS: Final = 30


def sweep(seeds: Iterable[Seed], jobs: int) -> Iterator[Result]:
    """Each seed's result."""
    if jobs == 1:
        for seed in seeds:
            yield seed.run()
        return
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for results in pool.imap(_run, _pieces(seeds)):
            yield from results


def last_line(results: Sequence[Result]) -> str:
    """The summary, for scripts."""
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
        work += WORK.get(seed.level, 1)
        if work >= WORK_A_PROCESS:
            yield piece
            piece, work = [], 0
    if piece:
        yield piece


def _run(seeds: list[Seed]) -> list[Result]:
    gc.disable()
    return [seed.run() for seed in seeds]
