"""Commands whose standard streams are closed, or full, say so in one sentence."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from tests.helpers.async_tests import beside
from tests.helpers.command_line import RAFTLOG
from tests.helpers.fake_broker import fake_cluster


@pytest.mark.parametrize(
    ("arguments", "closed", "code", "said"),
    [
        ("--version", ">&-", 1, "error: standard output is closed"),
        ("topic list", ">&-", 1, "error: standard output is closed"),
        ("--version", ">/dev/full", 1, "error: [Errno 28]"),
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
