"""Writes the page of a benchmark run: tables, plots, and the targets of this release.

A page names its commit, machine and day, since only the ratios between systems in one run are comparable.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from api.cli.closed_loop import Measured

Figures = Mapping[str, Mapping[str, Measured]]
"""By load, then by name of the system: the medians over the rounds."""


@dataclass(frozen=True, slots=True)
class Floor:
    """A target of this release, and the measured value."""

    what: str
    reached: float
    wanted: float
    unit: str = ""
    is_upper: bool = False  # the target is "at most"

    @property
    def is_kept(self) -> bool:
        """True if the measured value meets the target."""
        return self.reached <= self.wanted if self.is_upper else self.reached >= self.wanted


@dataclass(slots=True)
class Section:
    """One row of the suite: a title, a description, its tables and plots."""

    title: str
    text: str
    tables: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)  # names of files in the folder images
    floors: list[Floor] = field(default_factory=list)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: text in the first column, numbers in all other columns."""
    rule = "|---" + "|---:" * (len(columns) - 1) + "|"
    lines = ["| " + " | ".join(columns) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def throughput_table(figures: Figures, baseline: str, label: str = "load") -> str:
    """A table of records per second by load and system, with the ratios of the first system to all others."""
    systems = _systems(figures)
    rows = []
    for load, measured in figures.items():
        first = measured.get(baseline)
        cells = [load]
        for system in systems:
            found = measured.get(system)
            if found is None:
                cells.append("-")
                continue
            ratio = "" if first is None or system == baseline else f" ({_ratio(first, found)})"
            cells.append(f"{found.records_per_s / 1000:,.1f} k/s{ratio}")
        rows.append(cells)
    return table([label, *systems], rows)


def latency_table(measured: Mapping[str, Measured], baseline: str) -> str:
    """A table of p50 and p99 latencies by system, with the ratio of each p50 to the first system's p50."""
    first = measured[baseline]
    rows = [
        [system, f"{m.p50_ms:.2f} ms", f"{m.p99_ms:.2f} ms", f"{first.p50_ms / m.p50_ms:.2f}"]
        for system, m in measured.items()
    ]
    return table(["system", "p50", "p99", f"p50 of {_short(baseline)} ÷ its p50"], rows)


def page(sections: Sequence[Section], *, commit: str, took_s: float, rounds: int) -> str:
    """The text of the whole page."""
    parts = [
        "# Benchmarks\n",
        "Written by `make bench`; do not edit. Every system runs as three nodes with three replicas on one "
        "machine, together with the client. The systems run in turns; each figure is the median of "
        f"{rounds} rounds. Only ratios between systems of one run are comparable, since machines and days "
        "differ. A ratio in brackets is the figure of raftlog divided by that of the other system.\n",
        table(["this run", ""], [[key, value] for key, value in _machine(commit, took_s).items()]),
    ]
    floors = [floor for section in sections for floor in section.floors]
    if floors:
        parts += ["\n## Targets of this release\n", _floor_table(floors)]
    for section in sections:
        parts += [f"\n## {section.title}\n", section.text + "\n", *section.tables]
        parts += [f"![{section.title}](images/{name})\n" for name in section.images]
    return "\n".join(parts)


def _floor_table(floors: Sequence[Floor]) -> str:
    rows = [
        [
            floor.what,
            f"{floor.reached:,.2f}{floor.unit}",
            f"{'≤' if floor.is_upper else '≥'} {floor.wanted:,.2f}{floor.unit}",
            "yes" if floor.is_kept else "**no**",
        ]
        for floor in floors
    ]
    return table(["what", "measured", "target", "met"], rows)


def checked_out() -> str:
    """The commit of this checkout, with a mark if files are changed. Call this before results are written."""
    here = Path(__file__).parent
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() or "unknown"


def _machine(commit: str, took_s: float) -> dict[str, str]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "date": date.today().isoformat(),
        "commit": commit,
        "machine": f"{len(os.sched_getaffinity(0))} cores, {_processor()}, {memory_gb:.0f} GB of memory",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "duration": f"{took_s / 60:.0f} minutes",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _systems(figures: Figures) -> list[str]:
    return list(dict.fromkeys(system for measured in figures.values() for system in measured))


def _ratio(ours: Measured, theirs: Measured) -> str:
    return f"{ours.records_per_s / theirs.records_per_s:.2f}x"


def _short(name: str) -> str:
    return name.split(" (")[0].split(",")[0]
