"""Runs the fixed seeds, runs fresh seeds for some time, or prints the timeline of one seed.

The command is ``python -m verification.simulator``.

``--fixed`` always gives an equal verdict for an equal commit. ``--explore`` looks for new errors: its seeds
are random.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from verification.simulator.exploration import drawn_first, fresh
from verification.simulator.levels import Seed
from verification.simulator.reach import unreached
from verification.simulator.result import Result
from verification.simulator.seed_choice import (
    FAILED_SEEDS,
    FIXED_SEEDS,
    First,
    errors_before,
    failures,
    false_alarms,
    fixed,
    remember,
    unlisted,
)
from verification.simulator.shrink import Shrinker
from verification.simulator.sweep import last_line, sweep

MINUTES = 60.0
PROGRESS_S = 60.0
CHOOSER = "python -m tests.simulation.seed_cover"


def main() -> int:
    """Run the command; return the exit status: 1 with any violation, or if the fixed seeds reach too few
    kinds of faults.
    """
    parser = argparse.ArgumentParser(prog="python -m verification.simulator", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--seed", help="replay this seed and print its timeline: 7, core:7, log:7 or http:7")
    lists = f"{FAILED_SEEDS.name} and {FIXED_SEEDS.name}"
    action.add_argument("--fixed", action="store_true", help=f"run the seeds of {lists}")
    action.add_argument("--explore", action="store_true", help="run fresh seeds for --minutes")
    parser.add_argument("--shrink", action="store_true", help="reduce --seed to the faults that matter")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"duration of --explore ({MINUTES:g})")
    parser.add_argument("--first", type=int, help="the first fresh seed (default: drawn at random)")
    parser.add_argument("--remember", action="store_true", help=f"append failures to {FAILED_SEEDS.name}")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return replay(Seed.named(options.seed), shrinks=options.shrink)
    if options.fixed:
        return run_fixed(options.jobs)
    first = drawn_first() if options.first is None else First(options.first, "as asked")
    return explore(first, options.jobs, 60 * options.minutes, remembers=options.remember)


def run_fixed(jobs: int) -> int:
    """Run the seeds that once failed because of an error, and then the fixed list of seeds."""
    seeds = fixed()
    old = len(errors_before())
    words = f"{old} seeds that failed for an error, then {len(seeds) - old} fixed ones"
    print(f"{words}, on {jobs} processes", flush=True)
    began = time.monotonic()
    results = []
    for result in sweep(seeds, jobs):
        results.append(result)
        tell_violations(result)
    tell_kinds(results)
    print(f"{time.monotonic() - began:.0f} seconds on {jobs} processes")
    tell_failures(results)
    missing = unreached(results)
    if missing:
        print(f"the fixed seeds no longer reach: {', '.join(missing)}; choose them again with: {CHOOSER}")
    return max(report(results), 1 if missing else 0)


def explore(first: First, jobs: int, limit_s: float, *, remembers: bool) -> int:
    """Run the seeds that once failed without an error of a broker, then fresh seeds until the time has
    passed.

    Prints the progress about once a minute.
    """
    print(
        f"fresh seeds from {first.number} on ({first.reason}) for {limit_s / 60:g} minutes "
        f"on {jobs} processes; to repeat: make explore FIRST={first.number}",
        flush=True,
    )
    began = told = time.monotonic()
    results: list[Result] = []
    for result in sweep(chain(false_alarms(), fresh(first.number)), jobs):
        results.append(result)
        tell_violations(result)
        if result.violations:
            tell_failures([result], remembers=remembers)
        now = time.monotonic()
        if now - told >= PROGRESS_S:
            print(f"{(now - began) / 60:.0f} min: {last_line(results)}", flush=True)
            told = now
        if now - began >= limit_s:
            break
    tell_kinds(results)
    levels = Counter(Seed.named(result.name).level for result in results)
    print("seeds: " + ", ".join(f"{level} {count}" for level, count in levels.items()))
    return report(results)


def tell_violations(result: Result) -> None:
    """Print the first three violations of a run."""
    for violation in result.violations[:3]:
        line = f"seed {result.name} at {violation.at_s:.3f} s: {violation.invariant}: {violation.detail}"
        print(line, flush=True)


def tell_kinds(results: Iterable[Result]) -> None:
    """Print each kind of fault with the number of faults of this kind."""
    kinds = sum((result.faults for result in results), Counter())
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))


def tell_failures(results: Iterable[Result], *, remembers: bool = False) -> None:
    """Print the command that repeats a failed run, and the lines for the file of failed seeds.

    With ``remembers``, also append the lines to the file.
    """
    lines = failures(results)
    if not lines:
        return
    print(f"replay one with: make sim SEED={lines[0].partition(' ')[0]} SHRINK=1")
    if new := remember(lines) if remembers else unlisted(lines):
        is_done = "appended" if remembers else "to be appended"
        print(f"{is_done} to {FAILED_SEEDS}, to be committed with the correction:")
        print("\n".join(new), flush=True)


def replay(seed: Seed, *, shrinks: bool) -> int:
    """Run one seed and print its timeline; with ``shrinks``, print the smallest run that fails in an equal
    way.
    """
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
    """Print a one-line summary for users and scripts; return the exit status."""
    print(last_line(results))
    return 1 if any(result.violations for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
