"""Measures the scoreboard: ``make reliability`` writes reliability.json and docs/reliability.md.

Decides: which runs belong to each row, its figures, and whether its target is reached. Leaves to others: the
runs (packages of ``verification``, ``chaos`` and ``tests.planted_bugs``). Measuring a row leaves the other
rows unchanged; each row names its commit, machine and day, and is measured only on a clean checkout of a
commit. Row 2 is measured in pieces (``long_runs``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bench import long_runs, mutant_scores
from bench.long_runs import Piece
from bench.rows_of_chaos import abuse, corruption, exactly_once, power_losses, soak, unavailability
from bench.rows_of_checkers import checker_quality
from verification.crash_points import run_all
from verification.simulator.levels import BROKERS
from verification.simulator.result import Result
from verification.simulator.seed_choice import chosen, first_of_commit
from verification.simulator.sweep import last_line, sweep

ROOT: Final = Path(__file__).resolve().parents[1]
FIGURES: Final = ROOT / "reliability.json"
DOCUMENT: Final = ROOT / "docs" / "reliability.md"
JOBS: Final = os.cpu_count() or 1
RESULTS: Final = ("reliability.json", "docs/reliability.md")
"""Files that a measurement writes. A checkout in which only these files are changed counts as clean."""

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
    pieces: list[Piece] = field(default_factory=list)  # of row 2


@dataclass(frozen=True, slots=True)
class Task:
    """The parameters of a measurement.

    If ``is_quick``, only a part of the row is run. For row 2, ``pieces`` are run after the ``known`` pieces.
    """

    is_quick: bool
    commit: str
    date: str
    pieces: list[tuple[str, int]]
    known: list[Piece]


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a row so far. ``kept`` says whether they reach the target."""

    figures: Figures
    kept: bool
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The title, the target and the function of one row.

    The figures are stored whenever the function yields.
    """

    title: str
    target: str
    measure: Callable[[Task], Iterator[Measured]]


def simulation(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 1: every seed that ever failed, and 5,000 seeds of all levels, derived from the commit."""
    wanted = 100 if is_quick else 5000
    began = time.monotonic()
    first = first_of_commit()
    results = list(sweep(chosen(first.number, wanted), JOBS))
    took_s = time.monotonic() - began
    figures: Figures = {
        "seeds": len(results),
        "new seeds begin at": f"{first.number} ({first.reason})",
        "seeds of whole brokers": sum(result.name.startswith(BROKERS) for result in results),
        **_totals(results),
        "seconds": round(took_s, 1),
        "processes": JOBS,
        "last line": last_line(results),
    }
    enough = len(results) >= 5000 and int(figures["faults"]) >= 100_000
    return figures, enough and figures["violations"] == 0 and took_s <= 300


def long_run(task: Task) -> Iterator[Measured]:
    """Measure row 2, piece by piece, with seeds that no other sweep runs."""
    if task.is_quick:
        slices = [(level, max(1, count // 50)) for level, count in long_runs.PLAN]
        task = replace(task, pieces=slices, known=[])
    for pieces in long_runs.go_on(
        task.known,
        task.pieces,
        sources=long_runs.sources_of(ROOT),
        commit=task.commit,
        date=task.date,
        jobs=JOBS,
    ):
        yield Measured(long_runs.composed(pieces), long_runs.is_kept(pieces), pieces)


def planted_bugs(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 3: every planted bug."""
    if is_quick:
        raise Skipped("row 3 has no quick form")
    command = [sys.executable, "-m", "tests.planted_bugs"]
    end = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last_line = end.stdout.splitlines()[-1] if end.stdout else ""
    pairs = (word.partition("=") for word in last_line.split())
    figures: Figures = {name: int(value) for name, _, value in pairs if value.isdigit()}
    if "wrong" not in figures:
        raise RuntimeError(f"{' '.join(command)} ended with {end.returncode}: {end.stderr[-2000:]}")
    return figures, end.returncode == 0 and figures["wrong"] == 0


def crash_points(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 7: a crash after every disk operation."""
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


class Skipped(Exception):
    """The row cannot be measured now; the text is the reason."""


def _at_once(measure: Callable[[bool], tuple[Figures, bool]]) -> Callable[[Task], Iterator[Measured]]:
    def measured(task: Task) -> Iterator[Measured]:
        yield Measured(*measure(task.is_quick))

    return measured


ROWS: Final[dict[str, Measurement]] = {
    "1": Measurement(
        "Seeded simulation: whole brokers, bare cores, logs alone",
        "5,000 seeds, 100,000 faults, no violation, within 300 s on 2 cores",
        _at_once(simulation),
    ),
    "2": Measurement(
        "Simulated time without a violation",
        "1,000 simulated hours, 100 of them of whole brokers without quiet phases",
        long_run,
    ),
    "3": Measurement(
        "Planted bugs that are seen",
        "all, each by the test or the fixed seed that it names",
        _at_once(planted_bugs),
    ),
    "4": Measurement(
        "The checker of histories",
        "20 kinds of anomalies, each with a guilty history and a near miss; no false alarm in 10,000 clean "
        "histories; 50,000 operations a second",
        _at_once(checker_quality),
    ),
    "5": Measurement(
        "Soak of real clusters",
        "60 minutes of 3 and of 5 brokers: 600 faults of 15 kinds each, 1,000,000 acknowledged, none lost",
        _at_once(soak),
    ),
    "6": Measurement(
        "Real power loss",
        "200 cycles of one, some or all brokers: none lost, all start; 95 % of controls found guilty",
        _at_once(power_losses),
    ),
    "7": Measurement(
        "Crash points",
        "a kill and a power loss after every disk operation, at least 60 of them, all survived",
        _at_once(crash_points),
    ),
    "8": Measurement(
        "Damaged disks",
        "1,000 cases of one replica, 200 of all: each detected or shown harmless, repaired, nothing lost",
        _at_once(corruption),
    ),
    "9": Measurement(
        "Outages when a leader fails, as one client sees them",
        "p99 of 1 s after kill -9, SIGSTOP and isolation, 100 ms for a transfer; no needless election",
        _at_once(unavailability),
    ),
    "10": Measurement(
        "Exactly once: consume, transform, produce under kills",
        "100,000 transactions of up to ten records over three topics: none lost, doubled, torn or left open",
        _at_once(exactly_once),
    ),
    "12": Measurement(
        "Abuse",
        "no 500, no traceback, nothing lost; no loop held for 50 ms, 32 MiB beyond a bound at most; 600 s",
        _at_once(abuse),
    ),
}


def main() -> int:
    """Run the command line. Returns 1 if a measured row misses its target, 2 if the checkout is not clean."""
    parser = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(ROWS, key=int), help="this row; may be repeated"
    )
    parser.add_argument(
        "--piece", action="append", type=long_runs.wanted, help="of row 2: brokers:400; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="a slice of each row; nothing is written")
    options = parser.parse_args()
    if not options.quick and (changes := uncommitted(ROOT)):
        print("figures belong to a commit, but the checkout has changes; commit or stash these first")
        print("\n".join(changes))
        return 2
    known = msgspec.json.decode(FIGURES.read_bytes(), type=dict[str, Row]) if FIGURES.exists() else {}
    task = Task(
        is_quick=options.quick,
        commit=_commit(),
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        pieces=options.piece or [],
        known=known["2"].pieces if "2" in known else [],
    )
    measured: dict[str, Row] = {}
    for number, row in _measure(options.only or (["2"] if options.piece else ROWS), task):
        measured[number] = row
        if not options.quick:
            _write(known | measured)
    return 0 if options.quick or all(row.kept for row in measured.values()) else 1


def uncommitted(checkout: Path) -> list[str]:
    """The files that were changed since the commit, except ``RESULTS``; or the error message of git."""
    asked = [
        "git",
        "-C",
        str(checkout),
        "status",
        "--porcelain",
        "--",
        ".",
        *(f":!{path}" for path in RESULTS),
    ]
    end = subprocess.run(asked, capture_output=True, text=True, check=False)
    return end.stdout.splitlines() if end.returncode == 0 else [end.stderr.strip()]


def _write(rows: dict[str, Row]) -> None:
    rows = {number: rows[number] for number in sorted(rows, key=int)}
    FIGURES.write_text(json.dumps({number: asdict(row) for number, row in rows.items()}, indent=1) + "\n")
    DOCUMENT.write_text(page(rows))


def page(rows: dict[str, Row]) -> str:
    """The text of the document with the measured figures, row by row."""
    lines = [
        "# Reliability, measured",
        "",
        "`make reliability` writes this page and `reliability.json`; `make reliability ROW=7` measures one",
        "row again, from a clean checkout of a commit. Rows have the numbers of the project's scoreboard;",
        "missing rows have not been measured. [Simulator](simulation.md) describes the runs and the planted",
        "bugs.",
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
    lines += mutant_scores.section(mutant_scores.stored())
    return "\n".join([*lines, ""])


def _measure(numbers: Iterable[str], task: Task) -> Iterator[tuple[str, Row]]:
    for number in numbers:
        measurement = ROWS[number]
        print(f"row {number}: {measurement.title}", flush=True)
        try:
            for measured in measurement.measure(task):
                yield number, _row(number, measured, task)
                _tell(measurement, measured, is_quick=task.is_quick)
        except Skipped as skipped:
            print(f"  {skipped}")


def _row(number: str, measured: Measured, task: Task) -> Row:
    return Row(
        title=ROWS[number].title,
        target=ROWS[number].target,
        kept=measured.kept,
        figures=measured.figures,
        command=f"python -m bench.reliability --only {number}",
        commit=task.commit,
        machine=_machine(),
        date=task.date,
        pieces=measured.pieces,
    )


def _tell(measurement: Measurement, measured: Measured, *, is_quick: bool) -> None:
    for name, value in measured.figures.items():
        print(f"  {name}: {_shown(value)}")
    if not is_quick:
        print(f"  target: {measurement.target}: {'kept' if measured.kept else 'MISSED'}", flush=True)


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


def _shown(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int | float) else f"`{value}`" if "=" in value else value


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
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
