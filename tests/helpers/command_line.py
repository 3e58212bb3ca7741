"""The command line as its users run it: a process of its own with real pipes."""

from __future__ import annotations

import os
import subprocess
import sys

from chaos.cluster import Cluster

RAFTLOG = [sys.executable, "-m", "api.cli"]


def command(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that talks to a cluster, started."""
    return subprocess.Popen(
        [*RAFTLOG, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read line by line and what is read at the end then are one stream
        env={**os.environ, "RAFTLOG_SERVER": cluster.bootstrap},
    )


def run(cluster: Cluster, *arguments: str, stdin: bytes = b"", code: int = 0) -> tuple[bytes, str]:
    """What a command that ends with this code writes to standard output and to standard error."""
    process = command(cluster, *arguments)
    output, errors = process.communicate(stdin, timeout=90)
    assert process.returncode == code, errors.decode()
    assert b"Traceback" not in errors
    return output, errors.decode()
