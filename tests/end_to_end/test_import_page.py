"""docs/import.md is true: its commands print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S
from tests.helpers.documented_commands import Shown, masked, shown_commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"

pytestmark = pytest.mark.e2e


def check(shown: list[Shown], cluster: Cluster, folder: Path) -> None:
    """Run the commands in a folder, and compare what they print."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAFTLOG_URL": cluster.bootstrap,
    }
    for step in shown:
        done = subprocess.run(
            ["bash", "-c", step.command],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}"
        assert masked(done.stderr + done.stdout) == masked(step.output), step.command


# requirement: A12
def test_files_are_imported_as_the_page_shows(cluster: Cluster, tmp_path: Path) -> None:
    shown = shown_commands(PAGE)
    assert len(shown) >= 8
    check(shown, cluster, tmp_path)
