"""Search each planted bug; store the seed or test that detected it first, and the invariant.

``python -m tests.simulation.mutants`` searches all, from the first seed on, and writes
``docs/planted-bugs.md`` and ``caught.json``. ``--update`` begins with the stored seed or test; so does
``--check``, which CI runs, and which writes nothing. Seeds and tests that detect a bug must pass without
it; tests that have done so when they were stored are left to ``make check``, which runs them all. With names
of bugs only these are searched, and stored with ``--update``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from chaos.simulator.levels import BROKERS, GROUPS, HTTP, LOG, Seed, seeds
from chaos.simulator.odds import Odds
from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from tests.helpers.planted_bugs import Mutant, planted
from tests.simulation.mutants import MUTANTS

LIMIT_S = 15.0  # of a process's time: the target
PATIENCE_S = 60.0  # of the same: a bug that is seen later than that is missed
HANGS_S = 600.0  # of the clock: a bug whose process has not ended by then is missed
LOGS_A_TURN = 20
OVER_HTTP = ("raftlog.client", "api.")
SCRIPT = "script"
JOBS = 2 * (os.cpu_count() or 1)  # some tests mostly wait
CAUGHT = Path(__file__).with_name("caught.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "planted-bugs.md"


@dataclass(frozen=True, slots=True)
class Catch:
    """The first seed that detected a bug, with its level, and the invariant; or ``SCRIPT`` and the test."""

    seed: str
    invariant: str
    took_s: float


NO_TESTS = CollectedTests(())


def hunt(mutant: Mutant, before: Catch | None = None, tests: CollectedTests = NO_TESTS) -> Catch | None:
    """Search a bug with its script, if it has one, or with seeds; first with what detected it ``before``."""
    began = _used_s()
    with planted(mutant):
        for who in _tests(mutant.script, before) if mutant.script else _seeds(mutant, before):
            seen = look(who, tests)
            took_s = round(_used_s() - began, 1)
            if seen is not None:
                return Catch(SCRIPT if mutant.script else who, seen, took_s)
            if took_s > PATIENCE_S:
                return None
    return None


def look(who: str, tests: CollectedTests = NO_TESTS) -> str | None:
    """What a seed or some tests see now: the invariant that breaks, the first test that fails, or nothing."""
    if who.startswith("tests/"):
        return tests.first_failure(who)
    violations = Seed.named(who).run(stops_at_violation=True).violations
    return violations[0].invariant if violations else None


def _tests(script: str, before: Catch | None) -> Iterator[str]:
    if before is not None and before.invariant.startswith(script):
        yield before.invariant
    yield script


def _seeds(mutant: Mutant, before: Catch | None) -> Iterator[str]:
    """The stored seed; then those of the bug's level, if it names one.

    Else for the core all levels, mixed as in a sweep, for the storage logs alone and whole brokers in turns,
    for groups those, for others whole brokers, of which some draw nothing that it ``needs``.
    """
    area = mutant.area
    if before is not None and before.seed != SCRIPT:
        yield before.seed
    if mutant.level:
        yield from (f"{mutant.level}:{number}" for number in count())
    if area.startswith("groups."):
        yield from (f"{GROUPS}:{number}" for number in count())
    if area.startswith("raftlog.core"):
        yield from map(str, seeds(0, sys.maxsize))
    logs = LOGS_A_TURN if area.startswith("raftlog.storage") else 0
    for number in count():
        yield from (f"{LOG}:{log}" for log in range(number * logs, (number + 1) * logs))
        brokers = Seed(HTTP if area.startswith(OVER_HTTP) else BROKERS, number)
        odds = brokers.odds()
        assert isinstance(odds, Odds)
        if mutant.needs is None or mutant.needs(odds):
            yield str(brokers)


def _used_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def known() -> dict[str, Catch]:
    """What the last hunt has found."""
    return {name: Catch(**found) for name, found in json.loads(CAUGHT.read_text()).items()}


def hunt_all(
    mutants: Iterable[Mutant], before: dict[str, Catch], tests: CollectedTests, jobs: int = JOBS
) -> dict[str, Catch]:
    """All that matter, each in a process of its own; those that took longest before come first."""
    last = known()
    matter = sorted(
        (mutant for mutant in mutants if not mutant.equivalent),
        key=lambda mutant: last[mutant.name].took_s if mutant.name in last else LIMIT_S,
        reverse=True,
    )
    caught: dict[str, Catch] = {}
    work = [(mutant.name, partial(hunt, mutant, before.get(mutant.name), tests)) for mutant in matter]
    for name, catch in forked(work, jobs, HANGS_S):
        if catch is None:
            print(f"NOT SEEN: {name}", flush=True)
        else:
            print(f"{catch.took_s:5.1f} s  {name}: {catch.seed}, {catch.invariant}", flush=True)
            caught[name] = catch
    return caught


def false_alarms(
    caught: Iterable[Catch], tests: CollectedTests, passed: Collection[str] = (), jobs: int = JOBS
) -> list[str]:
    """Seeds and tests that fail without a planted bug, too: they prove nothing. ``passed``: known to pass."""
    who = {catch.invariant if catch.seed == SCRIPT else catch.seed for catch in caught}.difference(passed)
    return [
        f"{name}: {seen}"
        for name, seen in forked([(one, partial(look, one, tests)) for one in sorted(who)], jobs, HANGS_S)
        if seen
    ]


def search(
    mutants: Sequence[Mutant], before: dict[str, Catch], passed: Collection[str], jobs: int
) -> tuple[dict[str, Catch], list[str]]:
    """What is seen with each bug, and what without any."""
    caught: dict[str, Catch] = {}
    alarms: list[str] = []

    def run() -> None:
        gc.collect()
        gc.freeze()  # what all processes have is copied by none
        caught.update(hunt_all(mutants, before, tests, jobs))
        alarms.extend(false_alarms(caught.values(), tests, passed, jobs))

    tests = CollectedTests(mutant.script for mutant in mutants if mutant.script and not mutant.equivalent)
    tests.during(run)
    return caught, alarms


def document(caught: dict[str, Catch]) -> str:
    """The table of the documentation."""
    lines = [
        "# Planted bugs",
        "",
        "Errors that are inserted into the production code, one at a time. The simulator, with seeds from 0",
        "on, or a test (`script`) must detect each within 15 seconds. `python -m tests.simulation.mutants`",
        "writes this page. `make test` checks all of them, first with the seed or test that detected them",
        "before; it fails when one is missed, or when a seed of this list fails without a bug.",
        "",
        "| module | bug | detected by | after | invariant or test |",
        "|---|---|---|---|---|",
    ]
    for mutant in MUTANTS:
        catch = caught.get(mutant.name)
        if catch is not None:
            seen_by = f"`{catch.invariant}`" if catch.seed == SCRIPT else catch.invariant
            row = f"{catch.seed} | {catch.took_s} s | {seen_by}"
        elif mutant.equivalent:
            row = f"- | - | equivalent: {mutant.equivalent}"
        else:
            row = "- | - | **not detected**"
        lines.append(f"| `{mutant.area}` | {mutant.name} | {row} |")
    figures = summary(caught)
    lines += [
        "",
        f"{figures['caught']} of {figures['planted'] - figures['equivalent']} that are not equivalent are "
        f"detected, half of them within {figures['median_s']:g} s.",
        "",
    ]
    return "\n".join(lines)


def summary(caught: dict[str, Catch]) -> dict[str, float]:
    """The figures, for scripts."""
    times = [catch.took_s for catch in caught.values()]
    return {
        "planted": len(MUTANTS),
        "equivalent": sum(bool(mutant.equivalent) for mutant in MUTANTS),
        "caught": len(caught),
        "caught_by_scripts": sum(catch.seed == SCRIPT for catch in caught.values()),
        "median_s": round(median(times), 1),
        "slowest_s": max(times),
    }


def verdict(mutants: Iterable[Mutant], caught: dict[str, Catch], alarms: Sequence[str]) -> list[str]:
    """What is wrong, a line each: nothing when every bug that can matter is seen, and nothing else is."""
    missed = [mutant.name for mutant in mutants if not mutant.equivalent and mutant.name not in caught]
    return [f"missed: {name}" for name in missed] + [f"seen without a bug: {alarm}" for alarm in alarms]


def _write(caught: dict[str, Catch]) -> None:
    ordered = {mutant.name: caught[mutant.name] for mutant in MUTANTS if mutant.name in caught}
    CAUGHT.write_text(json.dumps({name: asdict(catch) for name, catch in ordered.items()}, indent=1) + "\n")
    DOCUMENT.write_text(document(ordered))
    print(json.dumps(summary(ordered)))


def main() -> int:
    """The exit status: 1 when some bug was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="look for these only")
    begins = parser.add_mutually_exclusive_group()
    begins.add_argument("--check", action="store_true", help="begin with what saw each; write nothing")
    begins.add_argument("--update", action="store_true", help="begin with what saw each; write what is found")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time: %(default)s")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    if unknown := {*options.names} - {mutant.name for mutant in chosen}:
        parser.error(f"no planted bug is called {', '.join(sorted(unknown))}")
    began = time.monotonic()
    before = known() if options.check or options.update else {}
    passed = {catch.invariant for catch in before.values()} if options.check else set()
    caught, alarms = search(chosen, before, passed, options.jobs)
    wrong = verdict(chosen, caught, alarms)
    if options.update or not (options.names or options.check):
        _write((known() if options.names else {}) | caught)
    equivalent = sum(bool(mutant.equivalent) for mutant in chosen)
    figures = f"planted={len(chosen)} cannot_matter={equivalent} seen={len(caught)} wrong={len(wrong)}"
    print("\n".join([*wrong, f"{figures} seconds={time.monotonic() - began:.0f}"]))
    return 1 if wrong else 0
