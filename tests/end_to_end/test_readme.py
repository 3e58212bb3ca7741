"""The README is true: its commands print what it shows, its Python runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S
from tests.helpers.documented_commands import masked, python_blocks, shown_commands

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

pytestmark = pytest.mark.e2e


def _run(command: list[str], cluster: Cluster) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAFTLOG_URL": cluster.bootstrap,
        "COLUMNS": "200",
    }
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)


def _at(text: str, cluster: Cluster) -> str:
    """The text with the ports of this cluster instead of 7070, 7071 and 7072."""
    for number, url in enumerate(cluster.urls):
        text = re.sub(rf"\b{7070 + number}\b", url.rsplit(":", 1)[1], text)
    return text


def test_every_command_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    shown = shown_commands(README)
    assert len(shown) >= 6
    with Cluster(tmp_path) as cluster:
        for number, step in enumerate(shown):
            done = _run(["bash", "-c", _at(step.command, cluster)], cluster)
            assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}"
            assert masked(done.stdout + done.stderr) == masked(step.output), step.command
            if number == 0:
                for partition in range(3):
                    cluster.leader("orders", partition)
        for block in python_blocks(README):
            done = _run([sys.executable, "-c", _at(block, cluster)], cluster)
            assert done.returncode == 0, done.stderr
            assert len(done.stdout.splitlines()) == 4
