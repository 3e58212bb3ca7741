"""Chooses seeds: seeds that ever failed, the fixed list, and new seeds that the commit determines.

``make test`` runs the seeds that failed because of an error, and the fixed list, so that one commit has one
verdict. It leaves out the false alarms, with which ``make explore`` begins. A measurement runs all seeds that
ever failed, and new seeds from a number on that follows from the commit. So no developer chooses these by
hand, and the commit is enough to repeat them. A checkout without git begins at ``WITHOUT_GIT``.
``exploration`` has fresh seeds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from verification.simulator.levels import Seed, seeds
from verification.simulator.result import Result

FAILED_SEEDS: Final = Path(__file__).with_name("failed_seeds.txt")
FIXED_SEEDS: Final = Path(__file__).with_name("fixed_seeds.txt")
CHECKOUT: Final = Path(__file__).resolve().parents[2]
WITHOUT_GIT: Final = 0
NO_ERROR: Final = ("false alarm", "no error is known")
"""The first words of a failed seed's line, if a checker was wrong or no error explains the failure."""


@dataclass(frozen=True, slots=True)
class First:
    """The number of the first new seed of a sweep, and the reason for this number."""

    number: int
    reason: str


def listed(path: Path) -> list[Seed]:
    """The seeds of a file, in its order."""
    return [seed for seed, _ in _lines(path)]


def failed_before(path: Path = FAILED_SEEDS) -> list[Seed]:
    """Return every seed that ever failed, in the order of the file."""
    return listed(path)


def errors_before(path: Path = FAILED_SEEDS) -> list[Seed]:
    """Return the seeds that failed because of an error in the tested code."""
    return [seed for seed, words in _lines(path) if not words.startswith(NO_ERROR)]


def false_alarms(path: Path = FAILED_SEEDS) -> list[Seed]:
    """Return the seeds that failed without a known error, mostly because a checker was wrong."""
    return [seed for seed, words in _lines(path) if words.startswith(NO_ERROR)]


def fixed() -> list[Seed]:
    """Return the seeds that failed because of an error, then the fixed list, without duplicates."""
    return list(dict.fromkeys((*errors_before(), *listed(FIXED_SEEDS))))


def failures(results: Iterable[Result]) -> list[str]:
    """Return the lines to append to ``failed_seeds.txt``: one for each run with a violation."""
    return [f"{result.name} # {result.violations[0].invariant}" for result in results if result.violations]


def unlisted(lines: Iterable[str], path: Path = FAILED_SEEDS) -> list[str]:
    """Return the lines whose seed is not in the file yet."""
    known = {str(seed) for seed in failed_before(path)}
    return [line for line in lines if line.partition(" ")[0] not in known]


def remember(lines: Iterable[str], path: Path = FAILED_SEEDS) -> list[str]:
    """Append the lines whose seed is not in the file yet; return the appended lines."""
    new = unlisted(lines, path)
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in new)
    return new


def first_of_commit(checkout: Path = CHECKOUT) -> First:
    """Return the number of the first new seed for the current commit: the CRC-32 of the commit's full id."""
    commit = _commit(checkout)
    if commit is None:
        return First(WITHOUT_GIT, "no commit is checked out here")
    return First(crc32(commit.encode()), f"commit {commit[:10]}")


def chosen(first: int, count: int) -> Iterator[Seed]:
    """Yield the seeds that failed before, then those among ``count`` seeds from ``first`` on that did not."""
    old = failed_before()
    yield from old
    yield from (seed for seed in seeds(first, count) if seed not in old)


def _lines(path: Path) -> Iterator[tuple[Seed, str]]:
    """Yield the seeds of a file, each with the words after its name."""
    for line in path.read_text().splitlines():
        name, _, words = line.partition("#")
        if name.strip():
            yield Seed.named(name.strip()), words.strip()


def _commit(checkout: Path) -> str | None:
    if not (checkout / ".git").exists():  # an installed copy may be inside another repository
        return None
    try:
        asked = ["git", "-C", str(checkout), "rev-parse", "--verify", "HEAD"]
        end = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return end.stdout.strip() if end.returncode == 0 else None
