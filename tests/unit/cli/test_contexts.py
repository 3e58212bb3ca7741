"""Contexts: which cluster a command talks to, and what the file holds."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from api.cli.commands import app, every_command
from api.cli.contexts import InvalidContexts, address_of_context, changed_contexts, read_contexts

COMMAND = dict(every_command())["topic list"]
URLS = {name: f"http://{name}.example:7070" for name in ("option", "named", "url", "variable", "used")}


def run(folder: Path, *arguments: str, code: int = 0) -> Result:
    environment = {"XDG_CONFIG_HOME": str(folder), "RAFTLOG_URL": None, "RAFTLOG_CONTEXT": None}
    found = CliRunner().invoke(app, arguments, env=environment)
    assert found.exit_code == code, found.output
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("named", "variable", "used"):
        run(tmp_path, "context", "add", name, "--url", URLS[name])
    run(tmp_path, "context", "use", "used")
    return tmp_path


@pytest.mark.parametrize("first", [*URLS, "default"])
def test_an_option_precedes_the_environment_and_that_the_context_in_use(
    folder: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = [*URLS]
    given = order[order.index(first) :] if first in order else []
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    for variable, source, value in (
        ("RAFTLOG_URL", "url", URLS["url"]),
        ("RAFTLOG_CONTEXT", "variable", "variable"),
    ):
        monkeypatch.setenv(variable, value) if source in given else monkeypatch.delenv(
            variable, raising=False
        )
    arguments = ["--url", URLS["option"]] if "option" in given else []
    arguments += ["--context", "named"] if "named" in given else []
    if not given:
        run(folder, "context", "remove", "used")
    with COMMAND.make_context("list", arguments) as context:
        assert context.params["server"] == URLS.get(first, "http://127.0.0.1:7070")


def test_contexts_are_listed_shown_and_removed(folder: Path) -> None:
    listed = json.loads(run(folder, "context", "list", "-o", "json").stdout)
    assert [(row["name"], row["current"]) for row in listed] == [
        ("named", False),
        ("used", True),
        ("variable", False),
    ]
    assert json.loads(run(folder, "context", "show", "-o", "json").stdout)["from"] == "context use"
    run(folder, "context", "remove", "used")
    assert json.loads(run(folder, "context", "show", "-o", "json").stdout)["from"] == "default"
    assert run(folder, "context", "use", "used", code=2).stderr.startswith(
        "error: there is no context 'used'"
    )
    assert "scheme" in run(folder, "context", "add", "x", "--url", "ftp://here", code=2).stderr


def test_the_file_is_its_owners_alone_and_keeps_fields_that_it_does_not_know(folder: Path) -> None:
    path = folder / "raftlog" / "contexts.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    content = json.loads(path.read_text())
    content["contexts"]["used"]["credentials"] = {"user": "u"}
    path.write_text(json.dumps(content))
    path.chmod(0o644)
    run(folder, "context", "add", "used", "--url", URLS["url"])
    assert json.loads(path.read_text())["contexts"]["used"] == {
        "url": URLS["url"],
        "credentials": {"user": "u"},
    }
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"contexts": []}',
        '{"contexts": {"a": 1}}',
        '{"contexts": {"a": {}}}',
        '{"contexts": {"a": {"url": null}}}',
        '{"contexts": {}, "current": ["a"]}',
        "\xff",
    ],
)
def test_a_damaged_file_is_wrong_usage(tmp_path: Path, content: str) -> None:
    (tmp_path / "raftlog").mkdir()
    (tmp_path / "raftlog" / "contexts.json").write_text(content, encoding="latin-1")
    assert "contexts.json" in run(tmp_path, "topic", "list", code=2).stderr


def test_a_name_that_is_none_is_refused(folder: Path) -> None:
    for name in ("", "a b", "\x1b[31m"):
        assert "name of a context" in run(folder, "context", "add", name, "--url", "x:1", code=2).stderr
    assert "no context ''" in run(folder, "topic", "list", "--context", "", code=2).stderr


def test_a_file_that_is_a_link_stays_one(folder: Path) -> None:
    path, other = folder / "raftlog" / "contexts.json", folder / "elsewhere.json"
    path.rename(other)
    path.symlink_to(other)
    run(folder, "context", "remove", "used")
    assert path.is_symlink()
    assert '"used"' not in other.read_text()


def test_changes_at_the_same_time_are_all_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    names = [f"at-once-{number}" for number in range(8)]

    def add(name: str) -> None:
        with changed_contexts() as contexts:
            contexts.add(name, "http://x:1")

    with ThreadPoolExecutor() as threads:
        list(threads.map(add, names))
    assert {*names} < {*read_contexts().by_name}


def test_without_a_home_directory_there_are_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    for variable in ("XDG_CONFIG_HOME", "RAFTLOG_URL", "RAFTLOG_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    assert address_of_context(None) is None
    with pytest.raises(InvalidContexts, match="XDG_CONFIG_HOME"), changed_contexts():
        pass
