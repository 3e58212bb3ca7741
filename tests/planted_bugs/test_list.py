"""The list of planted bugs is complete and short: a promise without a bug is a promise without a control."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.planted_bugs import BUGS, INVARIANTS
from verification.simulator.levels import Seed

ROOT = Path(__file__).resolve().parents[2]
BUGS_MAX = 300
# Numbers that two sections of docs/invariants.md share are told apart by the level.
LEVELS = {
    "Storage level, after each crash": "storage ",
    "Group level": "group ",
    "Delayed messages": "delayed ",
}
OVER_HTTP = re.compile(r"C\d+")
# Another check always sees the bug first.
WITHOUT_A_BUG = {
    "I3": "a follower that accepts what does not match breaks I26",
    "I5": "a term or commit index that falls gives a second vote (I28) or other committed entries (I1)",
    "I27": "a log that does not open after a crash fails at the storage level (storage D1)",
}


def numbers() -> list[str]:
    """The numbers of all invariants, with the level where two sections share a number."""
    found: list[str] = []
    section = ""
    for line in (ROOT / "docs" / "invariants.md").read_text().splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if row := re.match(r"\| ([A-Z]\d*) \|", line):
            is_client = section == "Over HTTP" and OVER_HTTP.fullmatch(row[1])
            found.append(("http " if is_client else LEVELS.get(section, "")) + row[1])
    return found


def test_each_invariant_has_a_bug() -> None:
    planted = {bug.promise for bug in INVARIANTS}
    assert planted | set(WITHOUT_A_BUG) == set(numbers())
    assert not planted & set(WITHOUT_A_BUG)


def test_there_are_few_bugs_and_each_has_its_own_name() -> None:
    assert len(BUGS) <= BUGS_MAX
    assert [name for name, times in Counter(bug.name for bug in BUGS).items() if times > 1] == []


def test_what_sees_a_bug_exists() -> None:
    for seen_by in {bug.seen_by for bug in BUGS}:
        path, is_test, _ = seen_by.partition("::")
        assert (ROOT / path).is_file() if is_test else str(Seed.named(seen_by)) == seen_by, seen_by
