"""Whether the tests see a mutant: they run against it in a process of its own until one fails.

A mutant is seen if a test fails, ends its process, or takes far longer than without the mutant. The tests
that run its line run, the fastest first, as long as they take ``TESTS_S`` together; then the seeds of the
simulator that run it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from tests.helpers.collected_tests import CollectedTests
from tests.mutation.covering import SEEDS, CoveringTests, first_violation
from tests.mutation.functions import Mutant, Planter, original

TESTS_S: Final = (
    20.0  # of CPU for the tests of one mutant, as long as they took when their lines were recorded
)
SEEDS_S: Final = 15.0  # the same, for the seeds that follow
TIMES: Final = 5  # as long as without the mutant, beside the limits of a judge
MEMORY_BYTES: Final = 2 << 30  # that a mutant may allocate
JUDGED_S: Final = 1800.0  # a process that judges a mutant and takes longer has an error of its own
PASSED: Final = "all passed"
FAILED: Final = "failed: "
NOT_PLANTED: Final = "not planted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict about one mutant."""

    outcome: str  # "seen", "survived", "equal" or "not planted"
    seen_by: str = ""
    how: str = ""
    tests: int = 0  # that may run
    left_out: int = 0  # that run its line, too, and would take too long


@dataclass(frozen=True, slots=True)
class Judge:
    """Runs tests against mutants. Its methods run in processes of their own."""

    tests: CollectedTests
    covering: CoveringTests
    planter: Planter
    cpu_s: float = 10.0  # that each test may use beside TIMES as much as without the mutant
    clock_s: float = 60.0  # of the clock, for tests that wait without end: generous, for a busy machine

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the tests of the mutant's lines against it."""
        code = mutant.compiled()
        if code is None:
            return Verdict("equal")
        names, left_out = self.chosen(mutant)
        before = original(mutant)
        if not names:
            return Verdict("survived", left_out=left_out)

        def plant() -> bool:
            return self.planter.plant(before, code) > 0

        seen_by, how = self.run(names, plant)
        outcome = "not planted" if how == NOT_PLANTED else "seen" if seen_by else "survived"
        return Verdict(outcome, seen_by, how, len(names), left_out)

    def chosen(self, mutant: Mutant) -> tuple[list[str], int]:
        """The tests to run in their order, and how many more run the mutant's lines."""
        found = self.covering.of(mutant.source.path, *mutant.lines)
        tests = [name for name in found if not name.startswith(SEEDS)]
        seeds = [name for name in found if name.startswith(SEEDS)]
        names = [*self._within(TESTS_S, tests), *self._within(SEEDS_S, seeds)]
        return names, len(found) - len(names)

    def _within(self, limit_s: float, names: Sequence[str]) -> Sequence[str]:
        ends = accumulate(self.covering.seconds[name] for name in names)
        return names[: sum(end <= limit_s for end in ends)]

    def run(self, names: Sequence[str], plant: Callable[[], bool] = lambda: True) -> tuple[str, str]:
        """The first test or seed that fails in a process of its own, and how it ended; or two empty texts."""
        receiver, sender = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(receiver)
            _in_child(lambda: self._run_all(names, plant, sender))
        os.close(sender)
        with open(receiver, "rb") as messages:
            said = messages.read().decode().splitlines()
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what a test has started and not ended
        last = said[-1] if said else "before the first test"
        if last == PASSED:
            return "", ""
        if last in (NOT_PLANTED, *names):
            died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            hung = died in (signal.SIGALRM, signal.SIGPROF)
            return last, NOT_PLANTED if last == NOT_PLANTED else "hung" if hung else "died"
        return last.removeprefix(FAILED), "failed"

    def _run_all(self, names: Sequence[str], plant: Callable[[], bool], sender: int) -> None:
        def says(text: str) -> None:
            os.write(sender, f"{text}\n".encode())

        def begins(name: str) -> None:
            says(name)
            usual_s = TIMES * self.covering.seconds.get(name, 0.0)
            signal.setitimer(signal.ITIMER_PROF, self.cpu_s + usual_s)  # ends the process: nothing handles it
            signal.setitimer(signal.ITIMER_REAL, self.clock_s + usual_s)

        if not plant():
            says(NOT_PLANTED)
            return
        failed = self.tests.first_failure_of([name for name in names if not name.startswith(SEEDS)], begins)
        for name in names:
            if failed is None and name.startswith(SEEDS):
                begins(name)
                failed = name if first_violation(name) else None
        says(PASSED if failed is None else f"{FAILED}{failed}")


def _in_child(work: Callable[[], None]) -> None:
    """Run the work and end this process. What it prints is of no interest, and its time limits end it."""
    os.setpgid(0, 0)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    try:
        work()
    finally:
        os._exit(0)
