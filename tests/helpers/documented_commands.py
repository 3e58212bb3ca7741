"""The commands that a document shows, with their output: blocks marked ``console``.

A line that begins with ``$`` is a command; the lines up to the next one are its output. Numbers
and ids differ from run to run, so outputs are compared with those masked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S


@dataclass(frozen=True, slots=True)
class Shown:
    """One command of a document and its documented output."""

    command: str
    output: str


def shown_commands(document: Path) -> list[Shown]:
    """All commands of a document, in order."""
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output.strip()))
    return found


def python_blocks(document: Path) -> list[str]:
    """All blocks of Python in a document."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


def masked(output: str) -> str:
    """The output with everything that differs between runs masked."""
    without_ids = re.sub(r"[0-9a-f]{32}", "ID", output.strip())
    return re.sub(r"[0-9]+(\.[0-9]+)?", "N", without_ids)


def check_shown(shown: Sequence[Shown], cluster: Cluster, folder: Path, places: Mapping[str, str]) -> None:
    """Run commands in a folder, with other addresses than those of the page, and compare what they print."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RAFTLOG_URL": cluster.bootstrap,
    }
    for step in shown:
        command = step.command
        for documented, real in places.items():
            command = command.replace(documented, real)
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}"
        assert masked(done.stderr + done.stdout) == masked(step.output), step.command
