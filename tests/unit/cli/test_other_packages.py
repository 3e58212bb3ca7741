"""Beside other code: packages of somebody else's that have the names of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.__main__ import OURS
from tests.helpers.command_line import packages_of_our_names

HOME = Path(__file__).parents[3]


def run(*options: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "raftlog", "--version"],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_current_directory_hides_nothing(tmp_path: Path) -> None:
    done = run("-P", "-m", cwd=packages_of_our_names(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", OURS)
def test_a_hidden_package_is_named_with_what_hides_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    done = run("-P", "-m", cwd=HOME, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path / name} hides the package {name!r} of raftlog in ")
