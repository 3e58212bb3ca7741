"""Make small changes of the production code, one at a time, and print those that no test sees.

``python -m tests.mutation --package raftlog/core --sample 200`` changes a package, ``--changed main`` the
functions that differ from another commit. The exit status is 1 only if the search itself has failed: a score
is no verdict, since some changes cannot matter.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.mutation.covering import PACKAGES, ROOT, SEEDS, Covered, CoveringTests, record
from tests.mutation.functions import Mutant, Planter, Source, changed_lines, sources
from tests.mutation.verdicts import JUDGED_S, Judge, Verdict

FOLDERS = ("conformance", "corruption", "paper", "properties", "scenarios", "simulation", "unit")


class OwnError(Exception):
    """The search cannot be made, or its result is not to be trusted. The text is the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--changed", metavar="COMMIT", help="functions that differ from the last common commit"
    )
    which.add_argument("--package", metavar="PATH", help="a folder or a file, such as raftlog/core")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of the mutants, drawn at random")
    parser.add_argument("--seed", type=int, help="draws the sample; printed where it is not given")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="only these, not all tests without a mark")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes: %(default)s")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    try:
        mutants = found(options.changed, options.package)
        wanted = options.sample or len(mutants)
        _print(f"{len(mutants)} mutants; {min(wanted, len(mutants))} are tried, drawn with seed {seed}")
        if mutants:
            random.Random(seed).shuffle(mutants)
            search(mutants, wanted, options.tests or all_tests(), options.jobs)
    except OwnError as error:
        _print(f"failed: {error}")
        return 1
    return 0


def found(changed: str | None, package: str | None) -> list[Mutant]:
    """All mutants of the functions that were asked for."""
    if package is not None:
        modules = sources(ROOT, package)
        if not modules:
            raise OwnError(f"{package} is no folder or file with Python modules")
        return [mutant for module in modules for mutant in module.mutants()]
    assert changed is not None
    try:
        lines = changed_lines(ROOT, changed, PACKAGES)
    except subprocess.CalledProcessError as error:
        raise OwnError(error.stderr.strip()) from None
    present = {path: here for path, here in sorted(lines.items()) if (ROOT / path).exists()}
    return [mutant for path, here in present.items() for mutant in Source(ROOT, path).mutants(here)]


def all_tests() -> list[str]:
    """Files with tests of the production code."""
    files = (path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in files)


def search(mutants: Sequence[Mutant], wanted: int, paths: Sequence[str], jobs: int) -> None:
    """Judge mutants in this order, as many as are wanted, and print the result."""
    tests = CollectedTests(paths)

    def run() -> None:
        for name in {mutant.source.module for mutant in mutants}:
            try:
                importlib.import_module(name)
            except ImportError as error:
                _print(f"not imported: {name}: {error}")
        planter = Planter()
        gc.collect()
        gc.freeze()  # what all processes have is copied by none
        files = sorted({name.partition("::")[0] for name in tests.names()})
        covered: list[Covered] = list(record(tests, [*files, SEEDS], jobs, _print))
        covering = CoveringTests(covered)
        _print(f"{len(covering.seconds)} tests and seeds can see a mutant")
        judge = Judge(tests, covering, planter)
        _report(judge, _judged(judge, mutants, wanted, jobs), jobs)

    try:
        tests.during(run)
    except RuntimeError as error:
        raise OwnError(str(error)) from None


def _judged(
    judge: Judge, mutants: Sequence[Mutant], wanted: int, jobs: int
) -> Iterable[tuple[Mutant, Verdict]]:
    """Verdicts as they come. Mutants with equal code are none: the next one takes their place."""
    waiting = list(mutants)
    judged = 0
    while waiting and judged < wanted:
        batch, waiting = waiting[: wanted - judged], waiting[wanted - judged :]
        work = [(str(number), partial(judge.judge, mutant)) for number, mutant in enumerate(batch)]
        for number, verdict in forked(work, jobs, JUDGED_S):
            mutant = batch[int(number)]
            if verdict is None:
                raise OwnError(f"nothing is known of {mutant}: its process has died")
            judged += verdict.outcome in ("seen", "survived")
            yield mutant, verdict


def _report(judge: Judge, judged: Iterable[tuple[Mutant, Verdict]], jobs: int) -> None:
    began = time.monotonic()
    verdicts: list[tuple[Mutant, Verdict]] = []
    for mutant, verdict in judged:
        verdicts.append((mutant, verdict))
        seen_by = f"{verdict.how}: {verdict.seen_by}: " if verdict.seen_by else ""
        _print(f"{verdict.outcome}: {seen_by}{mutant}")
    survivors = sorted(
        ((mutant, verdict) for mutant, verdict in verdicts if verdict.outcome == "survived"),
        key=lambda each: (each[0].source.path, each[0].line),
    )
    _print("\nSurvivors, and how many tests have let them pass:")
    for mutant, verdict in survivors:
        beside = f", {verdict.left_out} more would take too long" if verdict.left_out else ""
        _print(f"{mutant}  [{verdict.tests} tests{beside}]")
    count = Counter(verdict.outcome for _, verdict in verdicts)
    ways = Counter(verdict.how for _, verdict in verdicts if verdict.outcome == "seen")
    tried = count["seen"] + count["survived"]
    score = f"{100 * count['seen'] / tried:.1f} %" if tried else "no mutant"
    _print(
        f"\nsampled={tried} seen={count['seen']} survivors={count['survived']} score={score} "
        f"hung={ways['hung']} died={ways['died']} equal={count['equal']} "
        f"not_planted={count['not planted']} seconds={time.monotonic() - began:.0f}"
    )
    if alarms := _false_alarms(judge, (verdict for _, verdict in verdicts), jobs):
        raise OwnError(f"these fail without a mutant, too: {', '.join(alarms)}")


def _false_alarms(judge: Judge, verdicts: Iterable[Verdict], jobs: int) -> list[str]:
    """Tests that have seen a mutant, and fail without one."""
    names = sorted({verdict.seen_by for verdict in verdicts if verdict.seen_by})
    work = [(name, partial(judge.run, [name])) for name in names]
    return [name for name, ended in forked(work, jobs, JUDGED_S) if ended is None or ended[0]]


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
