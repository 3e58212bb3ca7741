"""The command line as a process of its own with real pipes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from chaos.cluster import Cluster
from raftlog.__main__ import COMMAND, OURS
from raftlog.testing.waits import LIMIT_S

RAFTLOG = [*COMMAND]


def command(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command that needs a cluster."""
    return subprocess.Popen(
        [*RAFTLOG, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # lines and the final rest must come from one stream
        env={**os.environ, "RAFTLOG_URL": cluster.bootstrap},
    )


def run(cluster: Cluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    """The standard output and standard error of a command that ends with this code."""
    process = command(cluster, *arguments)
    output, errors = process.communicate(stdin, timeout=2 * LIMIT_S)  # some wait for a condition themselves
    assert process.returncode == code, errors.decode()
    assert b"Traceback" not in errors
    return output, errors.decode()


def packages_of_our_names(folder: Path) -> Path:
    """A folder of another project that has packages with raftlog's names."""
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('this is another project')\n")
    return folder
