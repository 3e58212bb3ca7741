"""The command line: as a process with real pipes, and as a function in the process of the test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import IO

from click.testing import CliRunner, Result

from api.cli.commands import app
from chaos.cluster import Cluster
from raftlog.__main__ import COMMAND, OURS

RAFTLOG = [*COMMAND]


def command(cluster: Cluster, *arguments: str, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Start a command that needs a cluster."""
    return subprocess.Popen(
        [*RAFTLOG, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # lines and the final rest must come from one stream
        env={**os.environ, "RAFTLOG_URL": cluster.bootstrap},
    )


def run(cluster: Cluster, *arguments: str, code: int = 0) -> tuple[bytes, str]:
    """The standard output and standard error of a command in this process that ends with this code.

    A process of its own would take half a second of CPU to import its modules.
    """
    found = invoke(cluster.bootstrap, *arguments, code=code)
    return found.stdout_bytes, found.stderr


def health(cluster: Cluster) -> tuple[int, dict[str, object]]:
    """The exit code and the findings of ``raftlog cluster health``: none if no broker answers."""
    found = attempt(cluster.bootstrap, "cluster", "health", "-o", "json")
    return found.exit_code, json.loads(found.stdout or "{}")


def invoke(url: str, *arguments: str, code: int = 0, stdin: bytes | IO[bytes] = b"") -> Result:
    """The result of a command that runs in this process, uses this server and ends with this code."""
    found = attempt(url, *arguments, stdin=stdin)
    assert found.exit_code == code, (found.output, found.exception)
    return found


def attempt(url: str, *arguments: str, stdin: bytes | IO[bytes] = b"") -> Result:
    """The result of a command that runs in this process and uses this server, whatever its exit code is."""
    environment = {"RAFTLOG_URL": url, "XDG_CONFIG_HOME": os.devnull}
    found = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


class Commands:
    """Commands in this process that use one server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, text: str, *more: str, code: int = 0, stdin: bytes | IO[bytes] = b"") -> Result:
        """The result of a command that ends with this code; ``text`` is split at spaces."""
        return invoke(self.url, *text.split(), *more, code=code, stdin=stdin)

    def parsed(self, text: str) -> dict[str, object]:
        """The output as an object of JSON."""
        found = json.loads(self(f"{text} -o json").stdout)
        assert isinstance(found, dict)
        return found

    def refusal(self, text: str) -> str:
        """The error of a command that is refused."""
        return self(text, code=1).stderr


def packages_of_our_names(folder: Path) -> Path:
    """A folder of another project that has packages with raftlog's names."""
    for name in OURS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('this is another project')\n")
    return folder
