"""``python -m chaos.simulator``: many seeds and a summary, or one seed and its timeline.

A sweep runs every seed that ever failed, then new ones that follow from the commit (``seed_choice``).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import Counter

from chaos.simulator.levels import Seed
from chaos.simulator.result import Result
from chaos.simulator.seed_choice import (
    FAILED_SEEDS,
    First,
    chosen,
    failed_before,
    failures,
    first_of_commit,
    remember,
)
from chaos.simulator.shrink import Shrinker
from chaos.simulator.sweep import last_line, sweep

SEEDS = 5000
SEED_S = 0.14  # of one core, on average


def main() -> int:
    """The exit status: 1 with any violation."""
    parser = argparse.ArgumentParser(prog="python -m chaos.simulator", description=__doc__)
    parser.add_argument("--seed", help="replay this seed and print its timeline: 7, core:7, log:7 or http:7")
    parser.add_argument("--shrink", action="store_true", help="reduce --seed to the faults that matter")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of new seeds to run ({SEEDS})")
    parser.add_argument("--minutes", type=float, help="stop after this time, with the results so far")
    parser.add_argument("--first", type=int, help="the first new seed (default: follows from the commit)")
    parser.add_argument("--remember", action="store_true", help=f"append failures to {FAILED_SEEDS.name}")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return replay(Seed.named(options.seed), shrinks=options.shrink)
    first = first_of_commit() if options.first is None else First(options.first, "as asked")
    limit_s = math.inf if options.minutes is None else 60 * options.minutes
    results = run_all(first, options.seeds, options.jobs, limit_s)
    tell_failures(results, remembers=options.remember)
    return report(results)


def run_all(first: First, count: int, jobs: int, limit_s: float) -> list[Result]:
    """Run as many seeds as the time allows; print violations as they occur."""
    old = len(failed_before())
    minutes = min((old + count) * SEED_S / jobs, limit_s) / 60
    print(
        f"{old} seeds that failed before, then {count} from {first.number} on ({first.reason}): "
        f"about {math.ceil(minutes)} min on {jobs} processes; the same ones again: --first {first.number}",
        flush=True,
    )
    began = time.monotonic()
    results = []
    for result in sweep(chosen(first.number, count), jobs):
        results.append(result)
        for violation in result.violations[:3]:
            line = f"seed {result.name} at {violation.at_s:.3f} s: {violation.invariant}: {violation.detail}"
            print(line, flush=True)
        if time.monotonic() - began > limit_s:
            print(f"stopped after {limit_s / 60:g} minutes, before the last of {old + count} seeds")
            break
    kinds = sum((result.faults for result in results), Counter())
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    print(f"{len(results) / (time.monotonic() - began):.1f} seeds a second on {jobs} processes")
    return results


def tell_failures(results: list[Result], *, remembers: bool) -> None:
    """Print the command that repeats a failed run, and the lines for the file of failed seeds.

    With ``remembers`` the lines are appended to the file.
    """
    lines = failures(results)
    if not lines:
        return
    print(f"replay one with: make sim SEED={lines[0].partition(' ')[0]} SHRINK=1")
    if remembers:
        lines = remember(lines)
        print(f"appended to {FAILED_SEEDS}, to be committed:")
    else:
        print(f"to be appended to {FAILED_SEEDS} (make sim does this automatically):")
    print("\n".join(lines))


def replay(seed: Seed, *, shrinks: bool) -> int:
    """One run with its timeline; or the smallest one that fails alike."""
    result = seed.run(keeps_lines=not shrinks)
    if shrinks and result.violations:
        shrunk = Shrinker(seed, result).shrink()
        if shrunk is None:
            print(f"{seed}: its faults alone do not reproduce the violation; replay it without SHRINK")
        else:
            print(shrunk.describe())
    elif not shrinks:
        print(result.timeline)
    return report([result])


def report(results: list[Result]) -> int:
    """Print the last line, for users and scripts; return the exit status."""
    print(last_line(results))
    return 1 if any(result.violations for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
