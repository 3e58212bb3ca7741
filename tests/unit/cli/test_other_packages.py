"""The command line beside other code: packages of somebody else's that have the names of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers.command_line import packages_of_our_names
from tests.helpers.wheel import ROOT, WHEEL


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


def test_an_installed_wheel_hides_no_package_of_another_project(tmp_path: Path) -> None:
    at_the_top = {*WHEEL["only-include"]} - {*WHEEL["sources"]}
    assert at_the_top == {"raftlog", "spark_io", "pyspark_raftlog", "pyspark_raftlog_archive"}
    for source, target in {"raftlog": "raftlog", **WHEEL["sources"]}.items():
        shutil.copytree(
            ROOT / source, tmp_path / "site" / target, ignore=shutil.ignore_patterns("__pycache__")
        )
    others = packages_of_our_names(tmp_path / "project")
    path = os.pathsep.join((str(tmp_path / "site"), str(others)))
    done = run("-P", "-m", cwd=others, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    imported = subprocess.run(
        [sys.executable, "-P", "-c", "import raftlog, api"],
        cwd=others,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.stderr.endswith("ImportError: this is another project\n")
