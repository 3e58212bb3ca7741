"""Which tests run which lines, and how long each takes.

One run of all tests records it, each file of tests in a process of its own. The lines of a file's tests are
kept in ``.cache/mutation`` until one of the files that they have run changes; a later run repeats only these.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

import coverage

from raftlog.__main__ import OURS
from tests.helpers.collected_tests import CollectedTests
from tests.helpers.forks import forked
from verification.simulator.levels import BROKERS, CORE, GROUPS, LOG, Seed

ROOT: Final = Path(__file__).resolve().parents[2]
STORED: Final = ROOT / ".cache" / "mutation"
PACKAGES: Final = ("raftlog", *(each for each in OURS if each != "chaos"), "spark_io")
OWN: Final = "tests/mutation/"
SEEDS: Final = (
    "seed "  # begins the name of a run of the simulator, which counts as a test of the file ``SEEDS``
)
SEEDS_OF: Final = {
    CORE: 40,
    LOG: 20,
    GROUPS: 6,
    BROKERS: 3,
    "http": 1,
    **dict.fromkeys(("brokers-transactions", "brokers-compacted", "brokers-delayed", "brokers-queue"), 1),
    **dict.fromkeys(("brokers-group", "brokers-deleting", "brokers-healing", "brokers-joining"), 1),
}
FILE_LIMIT_S: Final = 1800.0  # tests of one file that take longer are left out
Lines = dict[str, int]
"""Files, relative to the repository, and their lines as the bits of a number."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The record of one file of tests: for each test its seconds of CPU and its lines."""

    contents: dict[str, str]
    seconds: dict[str, float]
    lines: dict[str, Lines] = field(default_factory=dict)


class CoveringTests:
    """Finds the tests that run some lines."""

    def __init__(self, covered: Iterable[Covered]) -> None:
        self.seconds: dict[str, float] = {}
        self._by_file: dict[str, list[tuple[str, int]]] = {}
        for each in covered:
            self.seconds |= each.seconds
            for test, files in each.lines.items():
                for path, lines in files.items():
                    self._by_file.setdefault(path, []).append((test, lines))

    def of(self, path: str, first: int, last: int) -> list[str]:
        """Tests that run any line from ``first`` to ``last``, the fastest first."""
        wanted = (1 << (last + 1)) - (1 << first)
        found = [test for test, lines in self._by_file.get(path, ()) if lines & wanted]
        return sorted(found, key=lambda test: (self.seconds[test], test))


def record(
    tests: CollectedTests, files: Sequence[str], jobs: int, tell: Callable[[str], None]
) -> Iterator[Covered]:
    """Run the tests of each file, unless what they have run is known and unchanged."""
    unknown = []
    for file in files:
        if (known := _load(file)) is None:
            unknown.append(file)
        else:
            yield known
    work = [(file, partial(_recorded, tests, file)) for file in unknown]
    for number, (file, covered) in enumerate(forked(work, jobs, FILE_LIMIT_S), start=1):
        if covered is None:
            tell(f"left out: {file} did not end within {FILE_LIMIT_S:.0f} s, or died")
            continue
        tell(f"{number}/{len(unknown)} {sum(covered.seconds.values()):.1f} s {file}")
        _store(file, covered)
        yield covered


def _recorded(tests: CollectedTests, file: str) -> Covered:
    """Runs in a process of its own. A test that fails without a mutant proves nothing, and is left out."""
    seconds: dict[str, float] = {}
    running: list[tuple[str, float]] = []
    measured = coverage.Coverage(
        data_file=None,
        config_file=False,
        include=[f"{ROOT / package}/*" for package in (*PACKAGES, "chaos", "verification", "tests")],
    )

    def ended() -> None:
        if running:
            name, began = running.pop()
            seconds[name] = round(time.process_time() - began, 4)

    def begins(name: str) -> None:
        ended()
        measured.switch_context(name)
        running.append((name, time.process_time()))

    names = [f"{SEEDS}{level}:{number}" for level, count in SEEDS_OF.items() for number in range(count)]
    run = _first_violation
    if file != SEEDS:
        names, run = tests.names(file), tests.first_failure_of
    measured.start()
    while names:
        failed = run(names, begins)
        ended()
        if failed is None:
            break
        seconds.pop(failed)
        names = names[names.index(failed) + 1 :]
    measured.stop()
    lines = _lines(measured.get_data(), seconds)
    return Covered(
        {path: content for path in _paths(file, lines) if (content := _content(path))}, seconds, lines
    )


def first_violation(name: str) -> str | None:
    """The invariant that a seed breaks, or the error that ends its run."""
    try:
        violations = Seed.named(name.removeprefix(SEEDS)).run(stops_at_violation=True).violations
    except BaseException as error:
        return repr(error)
    return violations[0].invariant if violations else None


def _first_violation(names: Sequence[str], before_each: Callable[[str], None]) -> str | None:
    for name in names:
        before_each(name)
        if first_violation(name) is not None:
            return name
    return None


def _lines(data: coverage.CoverageData, tests: Iterable[str]) -> dict[str, Lines]:
    found: dict[str, Lines] = {test: {} for test in tests}
    for path in sorted(data.measured_files()):
        name = str(Path(path).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(path).items():
            for test in contexts:
                if test in found:
                    found[test][name] = found[test].get(name, 0) | 1 << line
    return found


def _paths(file: str, lines: dict[str, Lines]) -> set[str]:
    found = {file, *(path for files in lines.values() for path in files)}
    return {path for path in found if not path.startswith(OWN)}


@cache
def _content(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16] if (ROOT / path).exists() else ""


def _place(file: str) -> Path:
    return STORED / (file.strip().removesuffix(".py").replace("/", ".") + ".json")


def _store(file: str, covered: Covered) -> None:
    """Equal sets of lines are written once: most tests of a file share them."""
    numbers: dict[str, int] = {}

    def number(lines: int) -> int:
        return numbers.setdefault(f"{lines:x}", len(numbers))

    of_sources = {
        test: {path: number(lines) for path, lines in files.items() if path.startswith(PACKAGES)}
        for test, files in covered.lines.items()
    }
    STORED.mkdir(parents=True, exist_ok=True)
    _place(file).write_text(json.dumps(asdict(covered) | {"lines": of_sources, "sets": [*numbers]}))


def _load(file: str) -> Covered | None:
    if not _place(file).exists():
        return None
    stored = json.loads(_place(file).read_text())
    if any(_content(path) != content for path, content in stored["contents"].items()):
        return None
    sets = [int(lines, 16) for lines in stored.pop("sets")]
    lines = {
        test: {path: sets[number] for path, number in files.items()}
        for test, files in stored.pop("lines").items()
    }
    return Covered(**stored, lines=lines)
