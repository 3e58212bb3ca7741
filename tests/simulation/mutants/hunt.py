"""Look for each planted bug; remember which seed saw it first, and by which invariant.

``python -m tests.simulation.mutants`` plants them all and writes ``docs/planted-bugs.md`` and
``caught.json``; ``--script NAME`` runs one bug's own tests with the bug in place.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from chaos.simulator.odds import Odds
from chaos.simulator.rings import BROKERS, LOG, Seed, seeds
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.plant import Mutant, planted

LIMIT_S = 15.0  # of this process's time
LOGS_A_TURN = 20
OVER_HTTP = ("raftlog.client", "api.")
SCRIPT = "script"
CAUGHT = Path(__file__).with_name("caught.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "planted-bugs.md"


@dataclass(frozen=True, slots=True)
class Catch:
    """Who saw a bug: the first seed, with its ring, and the invariant; or its script."""

    seed: str
    invariant: str
    took_s: float


def hunt(mutant: Mutant, first: str = "") -> Catch | None:
    """The seed that saw it before; then seed after seed, until one sees it or the time is up.

    Bugs of the core are looked for by all rings, mixed as in a sweep, those of the storage by logs alone and
    whole brokers in turns, others by whole brokers: those of the client and of HTTP where such clients are.
    """
    began = time.process_time()
    with planted(mutant):
        for seed in _seeds(mutant.area, first):
            result = seed.run(stops_at_violation=True)
            took_s = time.process_time() - began
            if result.violations:
                return Catch(str(seed), result.violations[0].invariant, round(took_s, 1))
            if took_s > LIMIT_S:
                return None
    return None


def _seeds(area: str, first: str) -> Iterator[Seed]:
    if first:
        yield Seed.named(first)
    if area.startswith("raftlog.core"):
        yield from seeds(0, sys.maxsize)
    logs = LOGS_A_TURN if area.startswith("raftlog.storage") else 0
    for number in count():
        yield from (Seed(LOG, log) for log in range(number * logs, (number + 1) * logs))
        brokers = Seed(BROKERS, number)
        if not area.startswith(OVER_HTTP) or _has_http(brokers):
            yield brokers


def _has_http(seed: Seed) -> bool:
    odds = seed.odds()
    return isinstance(odds, Odds) and odds.http is not None


def run_script(name: str) -> int:
    """The exit status of a bug's own tests with the bug in place: 1 when they see it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with planted(mutant):
        return int(pytest.main(["-x", "-q", "--no-header", mutant.script]))


def asked(mutant: Mutant) -> Catch | None:
    """What a bug's own tests say to it, in a process of their own."""
    began = _children_s()
    command = [sys.executable, "-m", "tests.simulation.mutants", "--script", mutant.name]
    end = subprocess.run(command, capture_output=True, check=False)
    took_s = round(_children_s() - began, 1)
    return Catch(SCRIPT, f"`{mutant.script}`", took_s) if end.returncode == 1 else None


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def known() -> dict[str, Catch]:
    """What the last hunt has found."""
    return {name: Catch(**found) for name, found in json.loads(CAUGHT.read_text()).items()}


def hunt_all() -> dict[str, Catch]:
    """All that matter: those with a script by that, the others by seeds."""
    matter = [mutant for mutant in MUTANTS if not mutant.equivalent]
    gc.collect()
    gc.freeze()
    caught: dict[str, Catch] = {}
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for mutant, catch in zip(matter, pool.imap(_seek, matter, chunksize=1), strict=True):
            print(f"{mutant.name}: {catch}", flush=True)
            if catch is not None:
                caught[mutant.name] = catch
    return caught


def _seek(mutant: Mutant) -> Catch | None:
    return asked(mutant) if mutant.script else hunt(mutant)


def document(caught: dict[str, Catch]) -> str:
    """The table, as it stands in the docs."""
    lines = [
        "# Planted bugs",
        "",
        "Each is planted into the running production code; the simulator, with seeds from 0 on, or a script",
        "test must see it within 15 seconds. `python -m tests.simulation.mutants` writes this page.",
        "",
        "| where | bug | seen by | after | invariant or script |",
        "|---|---|---|---|---|",
    ]
    for mutant in MUTANTS:
        catch = caught.get(mutant.name)
        if catch is not None:
            row = f"{catch.seed} | {catch.took_s} s | {catch.invariant}"
        elif mutant.equivalent:
            row = f"- | - | cannot matter: {mutant.equivalent}"
        else:
            row = "- | - | **not seen**"
        lines.append(f"| `{mutant.area}` | {mutant.name} | {row} |")
    figures = summary(caught)
    lines += [
        "",
        f"{figures['caught']} of {figures['planted'] - figures['equivalent']} that can matter are seen, "
        f"half of them within {figures['median_s']:g} s.",
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


def main() -> int:
    """The exit status: of the script, or 1 when some bug was not seen."""
    if sys.argv[1:2] == ["--script"]:
        return run_script(sys.argv[2])
    caught = hunt_all()
    CAUGHT.write_text(json.dumps({name: asdict(catch) for name, catch in caught.items()}, indent=1) + "\n")
    text = document(caught)
    DOCUMENT.write_text(text)
    print(json.dumps(summary(caught)))
    return 1 if "**not seen**" in text else 0
