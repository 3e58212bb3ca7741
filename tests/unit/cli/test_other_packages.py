"""The command line beside other code: packages of somebody else's that have the names of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.command_line import packages_of_our_names


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


def test_the_first_folder_of_the_path_hides_nothing(tmp_path: Path) -> None:
    others = packages_of_our_names(tmp_path)
    path = os.pathsep.join((str(others), os.environ.get("PYTHONPATH", "")))
    done = run("-m", cwd=others, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
