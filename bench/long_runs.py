"""Measures row 2 of the scoreboard, simulated time without a violation, in pieces that add up.

Decides: which seeds a piece runs, which pieces add up, and their sum. Pieces of different commits add up
until a violation. The next piece of changed code then starts the sum again at zero, so that a defect discards
all hours before it. Each piece begins after the last seed that was run of its level. Runs with quiet phases
have few faults per hour: their hours are reported, but do not count for the target.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final
from zlib import crc32

from raftlog.__main__ import OURS
from verification.simulator.levels import BROKERS, BROKERS_LONG, CORE, LOG, Seed
from verification.simulator.seed_choice import failures
from verification.simulator.sweep import sweep

HOURS_MIN: Final = 1000.0
BROKER_HOURS_MIN: Final = 100.0
COUNTED: Final = (CORE, LOG, BROKERS)
NAMES: Final = {
    CORE: "bare cores",
    LOG: "logs alone",
    BROKERS: "whole brokers",
    BROKERS_LONG: "whole brokers with quiet phases, not counted",
}
PLAN: Final = ((BROKERS, 200), (CORE, 1000), (LOG, 400), (BROKERS_LONG, 20))
"""The level and the number of seeds of each piece of a round. A piece takes some minutes."""
SOURCES: Final = ("raftlog", *OURS, "pyproject.toml")
BEHIND_SWEEPS: Final = 1 << 32  # above the seeds of row 1 (a CRC-32) and of explorations (32 random bits)

Figures = dict[str, int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Seeds of one level that were run together. ``failed`` names the seeds with a violation."""

    level: str
    first: int
    seeds: int
    hours: float
    faults: int
    acknowledged: int
    violations: int
    failed: str
    seconds: float
    sources: str
    commit: str
    date: str


def sources_of(checkout: Path) -> str:
    """A checksum of the code of the current commit, as hexadecimal text. Raises ``CalledProcessError``."""
    asked = ["git", "-C", str(checkout), "ls-tree", "-r", "HEAD", "--", *SOURCES]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return f"{crc32(listed.encode()):08x}"


def wanted(text: str) -> tuple[str, int]:
    """Parse a piece such as ``brokers:400``: the level and the number of seeds.

    Raises ``ValueError``, which names the remedy.
    """
    level, _, count = text.rpartition(":")
    if level not in NAMES or not count.isdigit():
        raise ValueError(
            f"{text!r} is not a piece: give a level and a number of seeds, such as {BROKERS}:400"
        )
    return level, int(count)


def go_on(
    known: Iterable[Piece],
    pieces: Sequence[tuple[str, int]],
    *,
    sources: str,
    commit: str,
    date: str,
    jobs: int,
) -> Iterator[list[Piece]]:
    """Run ``pieces``, or if this is empty, rounds of ``PLAN`` until the target is reached.

    Yields, after each piece, all pieces that add up.
    """
    found = since_violation(known, sources)
    for level, count in pieces or cycle(PLAN):
        if not pieces and is_reached(found):
            break
        first = max(
            (piece.first + piece.seeds for piece in found if piece.level == level),
            default=BEHIND_SWEEPS + int(sources, 16),
        )
        began = time.monotonic()
        results = list(sweep((Seed(level, first + number) for number in range(count)), jobs))
        found.append(
            Piece(
                level=level,
                first=first,
                seeds=count,
                hours=sum(result.simulated_s for result in results) / 3600,
                faults=sum(result.faults.total() for result in results),
                acknowledged=sum(result.acknowledged for result in results),
                violations=sum(len(result.violations) for result in results),
                failed=", ".join(failures(results)),
                seconds=time.monotonic() - began,
                sources=sources,
                commit=commit,
                date=date,
            )
        )
        yield found


def since_violation(known: Iterable[Piece], sources: str) -> list[Piece]:
    """The pieces that add up: all pieces after the last violation in code other than ``sources``."""
    found: list[Piece] = []
    for piece in known:
        found.append(piece)
        if piece.violations and piece.sources != sources:
            found.clear()
    return found


def is_reached(pieces: Sequence[Piece]) -> bool:
    """True if the counted hours have reached the target, with or without violations."""
    counted = sum(piece.hours for piece in pieces if piece.level in COUNTED)
    brokers = sum(piece.hours for piece in pieces if piece.level == BROKERS)
    return counted >= HOURS_MIN and brokers >= BROKER_HOURS_MIN


def is_kept(pieces: Sequence[Piece]) -> bool:
    """True if the counted hours have reached the target, and no piece of any level has a violation."""
    return is_reached(pieces) and not any(piece.violations for piece in pieces)


def composed(pieces: Sequence[Piece]) -> Figures:
    """The sums of the pieces, level by level."""
    figures: Figures = {}
    for level, name in NAMES.items():
        own = [piece for piece in pieces if piece.level == level]
        if own:
            first, seeds = own[0].first, sum(piece.seeds for piece in own)
            figures |= {
                f"simulated hours of {name}": round(sum(piece.hours for piece in own), 2),
                f"seeds of {name}": f"{seeds:,}, the first is {level}:{first}",
                f"faults of {name}": sum(piece.faults for piece in own),
            }
    counted = [piece for piece in pieces if piece.level in COUNTED]
    failed = ", ".join(piece.failed for piece in pieces if piece.failed)
    return figures | {
        "counted: simulated hours": round(sum(piece.hours for piece in counted), 2),
        "counted: faults": sum(piece.faults for piece in counted),
        "counted: acknowledged": sum(piece.acknowledged for piece in counted),
        "violations": sum(piece.violations for piece in pieces),
        **({"seeds with violations": failed} if failed else {}),
        "pieces": len(pieces),
        "commits": ", ".join(dict.fromkeys(piece.commit for piece in pieces)),
        "days": ", ".join(dict.fromkeys(piece.date for piece in pieces)),
        "seconds": round(sum(piece.seconds for piece in pieces)),
    }
