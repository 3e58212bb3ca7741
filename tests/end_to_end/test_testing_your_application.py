"""The page for users of the testing kit is true: its files are a project whose tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.__main__ import OURS
from raftlog.testing.waits import LIMIT_S
from tests.helpers.documented_commands import python_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testing-your-application.md"

pytestmark = pytest.mark.e2e


def _project(folder: Path) -> Path:
    """The files of the page, in a project that has a package for each name of ours."""
    for name in OURS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    for block in python_blocks(PAGE):
        path = folder / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(block)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return folder


def test_the_documented_tests_pass_in_a_project_with_packages_of_our_names(tmp_path: Path) -> None:
    project = _project(tmp_path)
    path = os.pathsep.join((str(project), str(ROOT)))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "raftlog.testing.pytest_plugin",
            "-p",
            "no:cacheprovider",
        ],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=5 * LIMIT_S,  # of six tests
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
