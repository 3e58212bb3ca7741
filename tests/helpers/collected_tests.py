"""Tests that pytest collects once, for many forked processes: its start takes longer than most tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

import hypothesis
import pytest

PHASES = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # a failure is enough: none is shrunk


class CollectedTests:
    """A pytest plugin: pytest collects ``paths`` and then waits while ``run`` runs.

    Processes that are forked meanwhile run any of the tests, each process as if it were the first.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(set(paths))
        self._tests: dict[str, pytest.Item] = {}
        self._first_failure: str | None = None
        self._run: Callable[[], None] | None = None

    def during(self, run: Callable[[], None]) -> None:
        """Call ``run`` with the tests collected. Raises ``RuntimeError`` if they cannot be, or it fails."""
        self._run = run
        if not self._paths:
            run()
            return
        # Without the terminal plugin pytest prints nothing. Output of tests is kept in each process's memory.
        status = pytest.main(["--capture=sys", "-p", "no:terminal", *self._paths], plugins=[self])
        if status != pytest.ExitCode.OK:
            raise RuntimeError(f"status {status} of pytest {' '.join(self._paths)}")

    def pytest_collection(self) -> None:
        """Have hypothesis draw the same examples in every process, and store none that a bug has failed."""
        hypothesis.settings.register_profile(
            "collected", hypothesis.settings(), derandomize=True, database=None, phases=PHASES
        )
        hypothesis.settings.load_profile("collected")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running the tests one after another."""
        if not session.testsfailed:  # else some cannot be collected
            assert self._run is not None
            self._tests = {test.nodeid: test for test in session.items}
            self._run()
        return True

    def pytest_internalerror(self, excrepr: object) -> None:
        """Say why ``run`` failed, in place of the terminal plugin."""
        print(excrepr, file=sys.stderr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first test that failed."""
        if report.failed and self._first_failure is None:
            self._first_failure = report.nodeid

    def names(self, path: str = "") -> list[str]:
        """Names of the collected tests, in the order of pytest; with ``path``, only those inside it."""
        return [name for name in self._tests if not path or name == path or name.startswith(_inside(path))]

    def first_failure(self, path: str) -> str | None:
        """Run tests until one fails; the process has to end afterwards. ``path``: as pytest takes it."""
        return self.first_failure_of(self.names(path))

    def first_failure_of(
        self, names: Sequence[str], before_each: Callable[[str], None] = lambda name: None
    ) -> str | None:
        """Run these tests in this order until one fails; the process has to end afterwards."""
        self._first_failure = None
        chosen = [self._tests[name] for name in names]
        left_open = contextlib.suppress(pytest.PytestUnraisableExceptionWarning)  # by a test that failed
        with left_open:
            for test, following in zip_longest(chosen, chosen[1:]):
                before_each(test.nodeid)
                test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                if self._first_failure is not None:
                    break
        return self._first_failure


def _inside(path: str) -> tuple[str, ...]:
    return (f"{path}/", f"{path}::", f"{path}[")
