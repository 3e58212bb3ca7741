"""Look for each planted bug; remember which seed saw it first, and by which invariant.

``python -m tests.simulation.mutants`` plants them all and writes ``docs/planted-bugs.md`` and
``caught.json``; ``--script NAME`` runs one bug's own tests with the bug in place.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

import pytest

from chaos.simulator.rings import BROKERS, CORE, Seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.plant import Mutant, planted

LIMIT_S = 15.0  # of this process's time
CAUGHT = Path(__file__).with_name("caught.json")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "planted-bugs.md"


@dataclass(frozen=True, slots=True)
class Catch:
    """Who saw a bug: the first seed, with its ring, and the invariant."""

    seed: str
    invariant: str
    took_s: float


def hunt(mutant: Mutant, first: str = "") -> Catch | None:
    """The seed that saw it before; then seed after seed, until one sees it or the time is up.

    Bugs of the core are looked for by bare cores and by whole brokers in turn, others by whole brokers.
    """
    rings = (CORE, BROKERS) if mutant.area.startswith("raftlog.core") else (BROKERS,)
    began = time.process_time()
    with planted(mutant):
        for seed in _seeds(first, rings):
            result = seed.run(stops_at_violation=True)
            took_s = time.process_time() - began
            if result.violations:
                return Catch(str(seed), result.violations[0].invariant, round(took_s, 1))
            if took_s > LIMIT_S:
                return None
    return None


def _seeds(first: str, rings: Sequence[str]) -> Iterator[Seed]:
    if first:
        yield Seed.named(first)
    for number in count():
        for ring in rings:
            yield Seed(ring, number)


def run_script(name: str) -> int:
    """The exit status of a bug's own tests with the bug in place: 1 when they see it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with planted(mutant):
        return int(pytest.main(["-x", "-q", "--no-header", mutant.script]))


def known() -> dict[str, Catch]:
    """What the last hunt has found."""
    return {name: Catch(**found) for name, found in json.loads(CAUGHT.read_text()).items()}


def hunt_all() -> dict[str, Catch]:
    """All that matter and have no script."""
    gc.collect()
    gc.freeze()
    caught: dict[str, Catch] = {}
    for mutant in MUTANTS:
        if mutant.equivalent:
            continue
        catch = hunt(mutant)
        if catch is not None:
            caught[mutant.name] = catch
        print(f"{mutant.name}: {catch}", flush=True)
    return caught


def document(caught: dict[str, Catch]) -> str:
    """The table, as it stands in the docs."""
    lines = [
        "# Planted bugs",
        "",
        "Each is planted into the running production code; the simulator, with seeds from 0 on, or a script",
        "test must see it within 15 seconds. `python -m tests.simulation.mutants` writes this page.",
        "",
        "| where | bug | first seed | after | seen by |",
        "|---|---|---|---|---|",
    ]
    for mutant in MUTANTS:
        catch = caught.get(mutant.name)
        if catch is not None:
            row = f"{catch.seed} | {catch.took_s} s | {catch.invariant}"
        elif mutant.script:
            row = f"- | - | script: `{mutant.script}`"
        elif mutant.equivalent:
            row = f"- | - | cannot matter: {mutant.equivalent}"
        else:
            row = "- | - | **not seen**"
        lines.append(f"| `{mutant.area}` | {mutant.name} | {row} |")
    matter = [mutant for mutant in MUTANTS if not mutant.equivalent]
    seen = sum(mutant.name in caught or bool(mutant.script) for mutant in matter)
    lines += ["", f"{seen} of {len(matter)} that can matter are seen.", ""]
    return "\n".join(lines)


def main() -> int:
    """The exit status: of the script, or 1 when some bug was not seen."""
    if sys.argv[1:2] == ["--script"]:
        return run_script(sys.argv[2])
    caught = hunt_all()
    CAUGHT.write_text(json.dumps({name: asdict(catch) for name, catch in caught.items()}, indent=1) + "\n")
    text = document(caught)
    DOCUMENT.write_text(text)
    return 1 if "**not seen**" in text else 0
