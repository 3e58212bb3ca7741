"""Commands whose standard streams are closed, or full, say so in one sentence."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli.commands import app
from tests.helpers.async_tests import beside
from tests.helpers.command_line import RAFTLOG
from tests.helpers.fake_broker import fake_cluster


@pytest.mark.parametrize(
    ("arguments", "closed", "code", "said"),
    [
        ("--version", ">&-", 1, "error: standard output is closed"),
        ("topic list", ">/dev/full", 1, "error: [Errno 28]"),
        ("topic list", "2>&-", 0, ""),
        ("topic list", "<&-", 0, ""),
        ("topic list", ">&- 2>&- <&-", 1, ""),
    ],
)
def test_a_closed_stream_is_no_traceback(arguments: str, closed: str, code: int, said: str) -> None:
    with beside(fake_cluster()) as cluster:
        command = f"{shlex.join(RAFTLOG)} {arguments}"
        if arguments != "--version":
            command += f" --server {cluster.urls[0]}"
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


def contents(folder: Path) -> dict[Path, bytes]:
    """The files of a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("context add b --url http://a:1", ">&-"),
        ("context use a", ">/dev/full"),
        ("context remove a", ">&-"),
        ("cluster init --data made", ">/dev/full"),
        ("cluster init --data made --host log1.example", ">&-"),
    ],
)
def test_what_has_changed_without_output_has_an_unknown_outcome(
    tmp_path: Path, words: str, output: str
) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    added = CliRunner().invoke(app, ["context", "add", "a", "--url", "http://a:1"], env=environment)
    assert added.exit_code == 0, added.output
    before = contents(tmp_path)
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(RAFTLOG)} {words} -o json {output}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: ")
    assert contents(tmp_path) != before
