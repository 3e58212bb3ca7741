"""The image, where a Docker engine is."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.helpers.deployed import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.docker]

TAG = "raftlog:tested"


def _missing() -> str | None:
    """Why no image can be built here."""
    if shutil.which("docker") is None:
        return "docker is missing"
    asked = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    return f"docker has no engine: {asked.stderr.strip()}" if asked.returncode else None


def _docker(*arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(_missing() is not None, reason=str(_missing()))
def test_the_image_is_built_and_runs_as_its_user() -> None:
    # requirement: X1
    _docker("build", "--tag", TAG, ".")
    assert _docker("run", "--rm", TAG, "--version").startswith("raftlog ")
    assert _docker("run", "--rm", "--entrypoint", "id", TAG, "-u") == "10001"
    assert (
        _docker("run", "--rm", "--entrypoint", "stat", TAG, "-c", "%u %a", "/var/lib/raftlog") == "10001 700"
    )
