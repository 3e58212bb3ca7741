"""Where more packages of an installation come from."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError
from os import PathLike
from pathlib import Path

import pytest

from raftlog.extras import install_command

ROOT = Path(__file__).parents[2]


class Installed(Distribution):
    """An installation whose installer has recorded this, or nothing."""

    def __init__(self, recorded: dict[str, object] | None) -> None:
        self._recorded = recorded

    def read_text(self, filename: str) -> str | None:
        return None if self._recorded is None else json.dumps(self._recorded)

    def locate_file(self, path: str | PathLike[str]) -> Path:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        (
            {"url": "file:///my%20files/raftlog-0.1.0-py3-none-any.whl", "archive_info": {}},
            "/my files/raftlog-0.1.0-py3-none-any.whl[server,chaos]",
        ),
        ({"url": "file:///src/raftlog", "dir_info": {"editable": True}}, "/src/raftlog[server,chaos]"),
        ({"url": "https://x.example/raftlog.whl"}, "raftlog[server,chaos] @ https://x.example/raftlog.whl"),
        (None, "raftlog[server,chaos]"),
    ],
)
def test_extras_come_from_where_the_package_came_from(
    recorded: dict[str, object] | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raftlog.extras.distribution", lambda name: Installed(recorded))
    assert shlex.split(install_command("server", "chaos")) == ["pip", "install", asked]


def test_extras_of_a_checkout_that_is_not_installed_come_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("raftlog.extras.distribution", missing)
    assert shlex.split(install_command("server"))[-1] == f"{ROOT}[server]"
