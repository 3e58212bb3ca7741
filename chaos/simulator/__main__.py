"""``python -m chaos.simulator``: many seeds and a verdict, or one seed and its timeline."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from zlib import crc32

from chaos.simulator.simulation import Result, run

SEEDS = 500
SEEDS_A_PIECE = 10


def main() -> int:
    """The exit status: 1 with any violation."""
    parser = argparse.ArgumentParser(prog="python -m chaos.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one and draw its timeline")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many to run ({SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    options = parser.parse_args()
    if options.seed is not None:
        result = run(options.seed, keeps_lines=True)
        print(result.timeline)
        return report([result])
    began = time.monotonic()
    results = []
    for result in _all(range(options.first, options.first + options.seeds), options.jobs):
        results.append(result)
        for violation in result.violations[:3]:
            line = f"seed {result.seed} at {violation.at_s:.3f} s: {violation.invariant}: {violation.detail}"
            print(line, flush=True)
    took_s = time.monotonic() - began
    kinds = sum((result.faults for result in results), Counter())
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    broken = [result.seed for result in results if result.violations]
    if broken:
        print(f"replay one with: make sim SEED={broken[0]}; all that failed: {broken}")
    print(f"{len(results) / took_s:.1f} seeds a second on {options.jobs} processes")
    return report(results)


def report(results: list[Result]) -> int:
    """The last line, for people and scripts; and what it means for the exit status."""
    violations = sum(len(result.violations) for result in results)
    trace = 0
    for result in results:
        trace = crc32(f"{result.seed} {result.trace}".encode(), trace)
    print(
        f"seeds={len(results)} "
        f"faults={sum(result.faults.total() for result in results)} "
        f"acknowledged={sum(result.acknowledged for result in results)} "
        f"violations={violations} "
        f"simulated_hours={sum(result.simulated_s for result in results) / 3600:.2f} "
        f"trace={trace:08x}"
    )
    return 1 if violations else 0


def _all(seeds: range, jobs: int) -> Iterator[Result]:
    """The results, in the order of the seeds."""
    gc.collect()
    gc.freeze()  # what is there by now stays: the collections between runs need not look at it
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=SEEDS_A_PIECE)


if __name__ == "__main__":
    sys.exit(main())
