"""``python -m tests.simulation.seed_cover``: choose the fixed seeds again.

Runs the seeds that failed before, 5,000 random ones, and more that draw a kind of fault which few of these
had. That takes six minutes of CPU. Writes ``fixed_seeds.txt`` of the simulator; prints what the list reaches.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tests.simulation.seed_cover import branches

if TYPE_CHECKING:  # imported by ``main`` when their source is instrumented
    from tests.simulation.seed_cover.measurement import Run
    from verification.simulator.levels import Seed

PRODUCTION = ("raftlog", "api", "broker", "groups", "partitions", "queues", "transactions", "delayed")
INSTRUMENTED = (*PRODUCTION, "verification.simulator")
"""Packages whose source gets flags: this module and what it imports must import none of them before."""
SEEDS = 5000
PROGRESS_S = 60.0
COMMAND = "python -m tests.simulation.seed_cover"
HEADER = """Seeds that `make test` runs, beside those of failed_seeds.txt: chosen by what they reach.
`{command}` writes this file. It runs the failed seeds and random ones, {runs}
in the end, and records for each: its level, its kinds of faults with the order of magnitude of their number,
its random parameters, and the branches of production code and of the simulator that it takes.
These seeds and those that failed for an error reach all of that in little time, but not each order of
magnitude; and each level and kind of fault twice if they can. Each line says what a seed adds to those that
were chosen before. Lines with other reasons were added by hand, and stay."""


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.seed_cover", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of random seeds ({SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    branches.instrument(INSTRUMENTED)
    from tests.simulation.seed_cover.measurement import rare
    from verification.simulator.seed_choice import chosen

    runs = list(_measured(chosen(options.first, options.seeds), options.jobs))
    runs += _measured(rare(runs), options.jobs)
    write_list(branches.NAMES, runs)
    return 0


def _measured(seeds: Iterable[Seed], jobs: int) -> Iterator[Run]:
    from tests.simulation.seed_cover.measurement import measured

    began = told = time.monotonic()
    for number, run in enumerate(measured(seeds, jobs), 1):
        if time.monotonic() - told >= PROGRESS_S:
            told = time.monotonic()
            print(f"{(told - began) / 60:.0f} min: {number} seeds", flush=True)
        yield run


def write_list(names: list[str], runs: list[Run]) -> None:
    """Choose among the runs, and write the file."""
    from tests.simulation.seed_cover.choice import by_hand, choose, features, table, text
    from verification.simulator.seed_choice import FIXED_SEEDS, errors_before

    kept = by_hand(FIXED_SEEDS.read_text())
    old = {*errors_before(), *kept}
    failed = frozenset(place for place, run in enumerate(runs) if run.seed in old)
    reached = features(runs, names)
    found = choose(runs, reached, failed)
    header = HEADER.format(command=COMMAND, runs=f"{len(runs):,}")
    FIXED_SEEDS.write_text(text(found, header, kept))
    listed = old | {each.run.seed for each in found}
    places = [place for place, run in enumerate(runs) if run.seed in listed]
    spent_s = sum(runs[place].cpu_s for place in places)
    print(f"{len(failed)} failed and {len(found)} fixed seeds of {len(runs):,}: {spent_s:.0f} s of CPU")
    print(f"all of them: {sum(run.cpu_s for run in runs):.0f} s of CPU")
    for kind, (everything, once, twice) in table(reached, places).items():
        print(f"{kind}: {everything:,}, these seeds reach {once:,}, twice {twice:,}")
    failing = [str(run.seed) for run in runs if run.violations]
    if failing:
        print(f"seeds with a violation, which are not chosen: {', '.join(failing)}")


if __name__ == "__main__":
    sys.exit(main())
