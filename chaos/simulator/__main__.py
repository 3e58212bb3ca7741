"""``python -m chaos.simulator``: many seeds and a verdict, or one seed and its timeline."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter

from chaos.simulator.result import Result
from chaos.simulator.rings import Seed, seeds
from chaos.simulator.shrink import Shrinker
from chaos.simulator.sweep import last_line, sweep

SEEDS = 500


def main() -> int:
    """The exit status: 1 with any violation."""
    parser = argparse.ArgumentParser(prog="python -m chaos.simulator", description=__doc__)
    parser.add_argument("--seed", help="replay this one and draw its timeline: 7, core:7 or log:7")
    parser.add_argument("--shrink", action="store_true", help="leave out of --seed what does not matter")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many to run ({SEEDS})")
    parser.add_argument("--minutes", type=float, help="stop after so many, with what was run until then")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(Seed.named(options.seed), shrinks=options.shrink)
    began = time.monotonic()
    limit_s = math.inf if options.minutes is None else 60 * options.minutes
    results = []
    for result in sweep(seeds(options.first, options.seeds), options.jobs):
        results.append(result)
        for violation in result.violations[:3]:
            line = f"seed {result.name} at {violation.at_s:.3f} s: {violation.invariant}: {violation.detail}"
            print(line, flush=True)
        if time.monotonic() - began > limit_s:
            print(f"stopped after {options.minutes} minutes, before the last of {options.seeds} seeds")
            break
    took_s = time.monotonic() - began
    kinds = sum((result.faults for result in results), Counter())
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    broken = [result.name for result in results if result.violations]
    if broken:
        print(f"replay one with: make sim SEED={broken[0]} SHRINK=1; all that failed: {' '.join(broken)}")
    print(f"{len(results) / took_s:.1f} seeds a second on {options.jobs} processes")
    return report(results)


def replay(seed: Seed, *, shrinks: bool) -> int:
    """One run, drawn; or the smallest that fails like it."""
    result = seed.run(keeps_lines=not shrinks)
    if shrinks and result.violations:
        shrunk = Shrinker(seed, result).shrink()
        if shrunk is None:
            print(f"{seed}: its faults alone do not bring the violation back; replay it without SHRINK")
        else:
            print(shrunk.describe())
    elif not shrinks:
        print(result.timeline)
    return report([result])


def report(results: list[Result]) -> int:
    """The last line, for people and scripts; and what it means for the exit status."""
    print(last_line(results))
    return 1 if any(result.violations for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
