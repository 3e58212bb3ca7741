"""Plant each bug, and see that the test or seed that it names fails with it and passes without it.

Each look runs in a forked process of its own, so that neither a bug nor a hang outlives it. pytest collects
the tests once, before the forks.
"""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.helpers.planted_bugs import NotPlanted, planted
from tests.planted_bugs.bug import PlantedBug
from verification.simulator.levels import Seed

ROOT = Path(__file__).resolve().parents[2]
USED_MAX_S = 5.0  # of CPU for one look; a longer one is named, and is no failure
HANGS_S = 300.0  # of the clock; a look that has not ended by then has seen nothing
JOBS = 2 * (os.cpu_count() or 1)  # some tests mostly wait for threads


@dataclass(frozen=True, slots=True)
class Look:
    """The outcome of one look: the first failing test or broken invariant, None where all is well."""

    seen: str | None
    used_s: float
    is_planted: bool = True  # False: the edit no longer applies, and ``seen`` says why


def changed_since(revision: str) -> set[str]:
    """Paths of files that differ from the merge base with ``revision``, committed or not."""
    base = _git("merge-base", revision, "HEAD").strip()
    return set(_git("diff", "--name-only", base).splitlines())


def search(bugs: Sequence[PlantedBug], jobs: int = JOBS) -> list[str]:
    """Look for all bugs; print a line for each. Returns what is wrong, a line each."""
    wrong: list[str] = []
    tests = CollectedTests({bug.seen_by.partition("::")[0] for bug in bugs if _is_test(bug.seen_by)})

    def run() -> None:
        gc.collect()
        gc.freeze()  # the forked processes then copy no objects of this one
        wrong.extend(_not_seen(bugs, tests, jobs))
        wrong.extend(_false_alarms(bugs, tests, jobs))

    tests.during(run)
    return wrong


def _not_seen(bugs: Sequence[PlantedBug], tests: CollectedTests, jobs: int) -> Iterator[str]:
    by_name = {bug.name: bug for bug in bugs}
    work = [(bug.name, partial(_look_with, bug, tests)) for bug in bugs]
    for name, look in forked(work, jobs, HANGS_S):
        bug = by_name[name]
        if look is not None and look.is_planted and look.seen is not None:
            slow = f"  (more than {USED_MAX_S:g} s)" if look.used_s > USED_MAX_S else ""
            print(f"{look.used_s:5.1f} s  {bug.promise}  {name}: {look.seen}{slow}", flush=True)
        elif look is not None and not look.is_planted:
            yield f"not planted: {name}: {look.seen}"
        else:
            yield f"not seen: {name}: {bug.seen_by}"


def _false_alarms(bugs: Sequence[PlantedBug], tests: CollectedTests, jobs: int) -> Iterator[str]:
    names = sorted({bug.seen_by for bug in bugs})
    for name, look in forked([(name, partial(_look, name, tests)) for name in names], jobs, HANGS_S):
        if look is None or look.seen is not None:
            yield f"fails without a bug: {name}: {'no outcome' if look is None else look.seen}"


def _look_with(bug: PlantedBug, tests: CollectedTests) -> Look:
    try:
        with planted(*bug.edits):
            return _look(bug.seen_by, tests)
    except NotPlanted as error:
        return Look(str(error), 0.0, is_planted=False)


def _look(seen_by: str, tests: CollectedTests) -> Look:
    began = _used_s()
    if _is_test(seen_by):
        seen = tests.first_failure(seen_by)
    else:
        violations = Seed.named(seen_by).run(stops_at_violation=True).violations
        seen = violations[0].invariant if violations else None
    return Look(seen, _used_s() - began)


def _is_test(seen_by: str) -> bool:
    return seen_by.startswith("tests/")


def _used_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
