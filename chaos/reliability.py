"""The scoreboard, measured: ``make reliability`` writes reliability.json and docs/reliability.md.

Decides: what each row runs, which figures it shows and whether its target is kept. Leaves to others: the runs
(``chaos.simulator``, ``chaos.crash_points``, ``chaos.corruption``, ``tests.simulation.mutants``). A row that
was measured before stays as it is when others are measured again; each says on which commit, machine and
day that was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from chaos.corruption.suite import run_suite
from chaos.crash_points import run_all
from chaos.simulator.result import Result
from chaos.simulator.rings import BROKERS, CORE, LOG, Seed, seeds
from chaos.simulator.sweep import last_line, sweep

ROOT: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = ROOT / "reliability.json"
DOCUMENT: Final = ROOT / "docs" / "reliability.md"
JOBS: Final = os.cpu_count() or 1
LONG_RUN_FIRST: Final = 1_000_000  # far from the seeds of row 1

Value = int | float | str
Figures = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row. ``kept`` says whether the target is reached."""

    title: str
    target: str
    kept: bool
    figures: Figures
    command: str
    commit: str
    machine: str
    date: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a row runs: the figures, and whether they keep the target. ``is_quick`` runs a slice of it."""

    title: str
    target: str
    measure: Callable[[bool], tuple[Figures, bool]]


def simulation(is_quick: bool) -> tuple[Figures, bool]:
    """Row 1: all rings, as ``make sim SEEDS=5000`` runs them."""
    wanted = 100 if is_quick else 5000
    began = time.monotonic()
    results = list(sweep(seeds(0, wanted), JOBS))
    took_s = time.monotonic() - began
    figures: Figures = {
        "seeds": len(results),
        "seeds of whole brokers": sum(result.name.startswith(BROKERS) for result in results),
        **_totals(results),
        "seconds": round(took_s, 1),
        "processes": JOBS,
        "last line": last_line(results),
    }
    enough = len(results) >= 5000 and int(figures["faults"]) >= 100_000
    return figures, enough and figures["violations"] == 0 and took_s <= 300


def long_run(is_quick: bool) -> tuple[Figures, bool]:
    """Row 2: seeds that row 1 does not run, until enough time has passed in them."""
    core_hours, broker_hours = (0.5, 0.02) if is_quick else (100.0, 1.0)
    began = time.monotonic()
    core = _until(core_hours, CORE)
    brokers = _until(broker_hours, BROKERS)
    logs = list(
        sweep((Seed(LOG, LONG_RUN_FIRST + number) for number in range(40 if is_quick else 4000)), JOBS)
    )
    figures: Figures = {
        "simulated hours of bare cores": _hours(core),
        "seeds of bare cores": len(core),
        "simulated hours of whole brokers": _hours(brokers),
        "seeds of whole brokers": len(brokers),
        "seeds of logs alone": len(logs),
        **_totals([*core, *brokers, *logs]),
        "seconds": round(time.monotonic() - began, 1),
        "seeds begin at": LONG_RUN_FIRST,
    }
    return figures, _hours(core) >= 100 and figures["violations"] == 0


def mutation(is_quick: bool) -> tuple[Figures, bool]:
    """Row 3: every planted bug; this also writes ``docs/planted-bugs.md``."""
    if is_quick:
        raise Skipped("row 3 has no quick form")
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.simulation.mutants"]
    end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        found: Figures = json.loads(next(line for line in end.stdout.splitlines() if line.startswith("{")))
    except (StopIteration, ValueError):
        raise RuntimeError(f"{' '.join(command)} ended with {end.returncode}: {end.stderr[-2000:]}") from None
    matter = int(found["planted"]) - int(found["equivalent"])
    found["score"] = f"{100 * int(found['caught']) / matter:.1f} %"
    found["seconds"] = round(time.monotonic() - began, 1)
    return found, end.returncode == 0 and found["caught"] == matter >= 40 and float(found["slowest_s"]) <= 15


def crash_points(is_quick: bool) -> tuple[Figures, bool]:
    """Row 7: a death after every disk operation."""
    outcomes = run_all(stride=20 if is_quick else 1, jobs=JOBS)
    figures: Figures = {
        "operations": outcomes.operations,
        "kills": outcomes.crashes,
        "power losses": outcomes.power_losses,
        "recovered": outcomes.recovered,
        "failed": len(outcomes.failures),
        "seconds": round(outcomes.seconds, 1),
    }
    is_whole = outcomes.crashes == outcomes.power_losses == outcomes.operations >= 60
    return figures, is_whole and not outcomes.failures


def corruption(is_quick: bool) -> tuple[Figures, bool]:
    """Row 8: damaged disks, of one replica and then of all three at different places."""
    cases, all_replicas = (20, 5) if is_quick else (1000, 200)
    found = run_suite(cases, all_replicas, jobs=JOBS)
    figures: Figures = {
        "cases with one damaged replica": found.cases,
        "cases with all replicas damaged": found.all_replicas,
        "detected": found.detected,
        "harmless, as was shown": found.harmless,
        "missed": found.missed,
        "replicas mended": found.repaired,
        "acknowledged and lost": found.lost,
        "served damaged": found.served_damaged,
        "failed": found.failed,
        "seconds": round(found.seconds, 1),
        **{f"not detected: {reason}": number for reason, number in found.reasons},
    }
    return figures, found.is_good and not is_quick


class Skipped(Exception):
    """This row is not measured now; the text says why."""


ROWS: Final[dict[str, Measurement]] = {
    "1": Measurement(
        "Seeded simulation: whole brokers, bare cores, logs alone",
        "5,000 seeds, 100,000 faults, no violation, within 300 s on 2 cores",
        simulation,
    ),
    "2": Measurement("Simulated time without a violation", "100 simulated hours in one run", long_run),
    "3": Measurement(
        "Planted bugs that are seen", "all that can matter of at least 40, each within 15 s", mutation
    ),
    "7": Measurement(
        "Crash points",
        "a kill and a power loss after every disk operation, at least 60 of them, all survived",
        crash_points,
    ),
    "8": Measurement(
        "Damaged disks",
        "1,000 cases of one replica, 200 of all: each detected or shown harmless, repaired, nothing lost",
        corruption,
    ),
}


def main() -> int:
    """The exit status: 1 when a measured row misses its target."""
    parser = argparse.ArgumentParser(prog="python -m chaos.reliability", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(ROWS), help="this row; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a slice of each row; nothing is written")
    options = parser.parse_args()
    measured = dict(_measure(options.only or ROWS, is_quick=options.quick))
    if options.quick:
        return 0
    rows = {**_known(), **{number: asdict(row) for number, row in measured.items()}}
    rows = {number: rows[number] for number in sorted(rows, key=int)}
    FIGURES.write_text(json.dumps(rows, indent=1) + "\n")
    DOCUMENT.write_text(page({number: Row(**row) for number, row in rows.items()}))
    return 0 if all(row.kept for row in measured.values()) else 1


def page(rows: dict[str, Row]) -> str:
    """The document: what was measured, row by row."""
    lines = [
        "# Reliability, measured",
        "",
        "`make reliability` writes this page and `reliability.json`; `make reliability ROW=7` measures one",
        "row anew. Rows have the numbers of the project's scoreboard; one that is missing has not been",
        "measured. What is run is told in [Simulator](simulation.md), which bugs are planted in",
        "[Planted bugs](planted-bugs.md).",
        "",
        "| row | what | target | kept |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {number} | {row.title} | {row.target} | {'yes' if row.kept else '**no**'} |"
        for number, row in rows.items()
    ]
    for number, row in rows.items():
        lines += ["", f"## Row {number}: {row.title}", "", "| figure | value |", "|---|---|"]
        lines += [f"| {name} | {_shown(value)} |" for name, value in row.figures.items()]
        lines += ["", f"Commit {row.commit}, {row.date}, {row.machine}: `{row.command}`."]
    return "\n".join([*lines, ""])


def _measure(numbers: Iterable[str], *, is_quick: bool) -> Iterable[tuple[str, Row]]:
    for number in numbers:
        measurement = ROWS[number]
        print(f"row {number}: {measurement.title}", flush=True)
        try:
            figures, kept = measurement.measure(is_quick)
        except Skipped as skipped:
            print(f"  {skipped}")
            continue
        for name, value in figures.items():
            print(f"  {name}: {_shown(value)}")
        if not is_quick:
            print(f"  target: {measurement.target}: {'kept' if kept else 'MISSED'}", flush=True)
        yield (
            number,
            Row(
                title=measurement.title,
                target=measurement.target,
                kept=kept,
                figures=figures,
                command=f"python -m chaos.reliability --only {number}",
                commit=_commit(),
                machine=_machine(),
                date=datetime.now(UTC).strftime("%Y-%m-%d"),
            ),
        )


def _totals(results: list[Result]) -> Figures:
    broken = [result.name for result in results if result.violations]
    return ({"seeds with violations": " ".join(broken)} if broken else {}) | {
        "faults": sum(result.faults.total() for result in results),
        "kinds of faults": len({kind for result in results for kind in result.faults}),
        "acknowledged": sum(result.acknowledged for result in results),
        "violations": sum(len(result.violations) for result in results),
        "simulated hours": _hours(results),
    }


def _hours(results: list[Result]) -> float:
    return round(sum(result.simulated_s for result in results) / 3600, 2)


def _until(hours: float, ring: str) -> list[Result]:
    """Results of seeds of one ring until so much time has passed in them."""
    results: list[Result] = []
    endless = (Seed(ring, number) for number in count(LONG_RUN_FIRST))
    while _hours(results) < hours:
        piece = [next(endless) for _ in range(100 * JOBS)]
        results += sweep(piece, JOBS)
    return results


def _known() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return found


def _shown(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int | float) else f"`{value}`" if "=" in value else value


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _machine() -> str:
    model = platform.machine()
    with open("/proc/cpuinfo") as file:
        model = next(
            (line.partition(":")[2].strip() for line in file if line.startswith("model name")), model
        )
    return f"{JOBS} cores of {model}, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
