"""Writes the mutation scores into ``docs/reliability.md``, from ``mutants.json``, which people edit.

``make mutants`` counts the mutants that no test detects. People decide whether such a mutant can matter, so
no command can compute the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

SCORES: Final = Path(__file__).resolve().parents[1] / "mutants.json"


class Score(msgspec.Struct, frozen=True):
    """The score of one package.

    ``equivalent`` counts undetected mutants that change only speed or texts, or nothing.
    """

    package: str
    mutants: int
    tried: int
    seen: int
    equivalent: int
    seed: int
    commit: str

    @property
    def percent(self) -> float:
        """The percentage of the tried mutants that tests detect; equivalent mutants are not counted."""
        return 100 * self.seen / (self.tried - self.equivalent)


def section(scores: Sequence[Score]) -> list[str]:
    """The lines of the document's section about mutants."""
    lines = [
        "",
        "## Mutants",
        "",
        "`make mutants` changes functions a little, one at a time, and runs the tests and the seeds of the",
        "simulator that run the changed line: [Mutants](testing.md#mutants). These were drawn at random.",
        "Those of commits 45b61281 and e9bf41f7 ran against the tests of their package, its scenarios and",
        "properties, and few seeds, the others against unit tests, the tests of the Raft paper and seeds:",
        "scores are lower bounds. A survivor is equivalent if it changes speed, texts or nothing, which a",
        "person has judged. Tests that see some of the others have been added since, and are not counted.",
        "Packages that are missing were not measured.",
        "",
        "| package | mutants | tried | seen | survivors | equivalent | seen of the others | commit, seed |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| `{each.package}` | {each.mutants:,} | {each.tried} | {each.seen} | {each.tried - each.seen} "
        f"| {each.equivalent} | {each.percent:.0f} % | {each.commit}, {each.seed} |"
        for each in scores
    ]
    return lines


def stored() -> list[Score]:
    """Read the scores in ``mutants.json``."""
    return msgspec.json.decode(SCORES.read_bytes(), type=list[Score])
