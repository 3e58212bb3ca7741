"""The command line as its users run it: a process of its own with real pipes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from chaos.cluster import Cluster
from raftlog.__main__ import COMMAND, OURS

RAFTLOG = [*COMMAND]


def command(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that talks to a cluster, started."""
    return subprocess.Popen(
        [*RAFTLOG, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read line by line and what is read at the end then are one stream
        env={**os.environ, "RAFTLOG_URL": cluster.bootstrap},
    )


def run(cluster: Cluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    """What a command that ends with this code writes to standard output and to standard error."""
    process = command(cluster, *arguments)
    output, errors = process.communicate(stdin, timeout=90)
    assert process.returncode == code, errors.decode()
    assert b"Traceback" not in errors
    return output, errors.decode()


def packages_of_our_names(folder: Path) -> Path:
    """A folder of somebody's project that has packages of the names of ours."""
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('this is another project')\n")
    return folder
