"""``raftlog dlq`` with the HTTP application of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import Result

from raftlog.records.failures import FailedRecord
from raftlog.wire import media_types, paths
from tests.helpers.async_tests import beside
from tests.helpers.command_line import Commands
from tests.helpers.dead_letters import DEAD, RETRY, batch, ids, letter
from tests.helpers.http_server import serve
from tests.helpers.real_cluster import call


class DeadLetters(Commands):
    """Commands about group ``mail`` of topic ``orders``."""

    def run(self, name: str, *arguments: str, code: int = 0) -> Result:
        """A command that ends with this code."""
        return self(f"dlq {name} orders --group mail", *arguments, code=code)

    def open(self, *arguments: str) -> list[dict[str, object]]:
        """The dead letters of a list."""
        found = json.loads(self.run("list", *arguments, "-o", "json").stdout)
        assert isinstance(found, list)
        return found

    def topic(self, name: str, **config: str) -> None:
        """Make one of the two topics."""
        body = {"name": name, "partitions": 1, "replication_factor": 3, "config": config}
        assert call(self.url, "POST", "/v1/topics", body).status == 201

    def add(self, *letters: FailedRecord) -> None:
        """Append dead letters."""
        sent = {"Content-Type": media_types.BATCH}
        path = paths.partition_records(DEAD, 0)
        assert call(self.url, "POST", path, batch(*letters), sent).status == 200


@pytest.fixture
def commands() -> Iterator[DeadLetters]:
    with beside(serve()) as server:
        yield DeadLetters(server.url)


@pytest.fixture
def dlq(commands: DeadLetters) -> DeadLetters:
    commands.topic(DEAD, **{"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"})
    commands.topic(RETRY)
    commands.add(
        letter(1, value=b'{"a":1}', headers=(("h", b"\xff"), ("raftlog.tag", b"t"))),
        letter(2, key=b"u2", reason="TimeoutError: \x1b[2J late\n" + 200 * "x"),
        letter(3, key=None, value=None),
    )
    return commands


def test_dead_letters_are_listed_and_shown(dlq: DeadLetters) -> None:
    # requirement: A7
    assert [row["id"] for row in dlq.open()] == ids([1, 2, 3])
    assert dlq.open("--key", "u2") == dlq.open("--reason", "LATE") == dlq.open("--id", "orders/0/2")
    table = dlq.run("list", "--limit", "2")
    assert table.stdout.splitlines()[1].split()[:3] == ["orders/0/1", "1970-01-01T00:00:02.001+00:00", "5"]
    assert "more than 2" in table.stderr
    assert "\x1b" not in table.stdout
    assert len(table.stdout.splitlines()) == 3
    shown = dlq.run("show", "orders/0/1").stdout
    assert "reason: ValueError: no such user\n" in shown
    assert "header h: \\xff\n" in shown
    assert shown.endswith('\n{"a":1}\n')
    whole = json.loads(dlq.run("show", "orders/0/1", "-o", "json").stdout)
    assert (whole["value"], whole["encoding"], whole["tags"]) == ({"a": 1}, "json", ["t"])
    assert whole == call(dlq.url, "GET", "/v1/topics/orders/dlq/mail?id=orders/0/1").rows("items")[0]
    assert "no value" in dlq.run("show", "orders/0/3").stderr


def test_dead_letters_are_redriven_and_discarded(dlq: DeadLetters) -> None:
    # requirement: A7
    assert "3 would be redriven; nothing" in dlq.run("redrive", "--all", "--dry-run").stderr
    assert len(dlq.open()) == 3
    assert dlq.run("redrive", "--id", "orders/0/1").stderr == "1 redriven\n"
    again = dlq.run("redrive", "--id", "orders/0/1", "--id", "orders/0/2", code=1)
    assert "1 redriven\n" in again.stderr
    assert "orders/0/1; `raftlog dlq list orders --group mail`" in again.stderr
    assert (
        json.loads(dlq.run("discard", "--all", "--limit", "5", "-o", "json").stdout)[0]["id"] == "orders/0/3"
    )
    assert dlq.run("list").stderr == "there are no dead letters\n"
    assert "dlq list" in dlq.run("show", "orders/0/1", code=1).stderr


@pytest.mark.parametrize("arguments", [(), ("--limit", "5"), ("--all", "--key", "u1")])
def test_a_selection_is_needed(dlq: DeadLetters, arguments: tuple[str, ...]) -> None:
    for name in ("redrive", "discard"):
        assert "or --all" in dlq.run(name, *arguments, code=2).stderr
    assert len(dlq.open()) == 3


def test_an_error_names_the_option(dlq: DeadLetters) -> None:
    for name in ("list", "redrive"):
        assert "--id: 'orders' is no id" in dlq.run(name, "--id", "orders", code=1).stderr


def test_a_missing_topic_is_explained_with_commands(commands: DeadLetters) -> None:
    for name in ("list", "redrive", "discard"):
        arguments = () if name == "list" else ("--all",)
        errors = commands.run(name, *arguments, code=1).stderr
        assert errors.startswith("error (topic_not_found): group 'mail' has no dead letters of 'orders'")
        assert "`raftlog topic list`" in errors
    commands.topic(DEAD)
    errors = commands.run("redrive", "--all", code=1).stderr
    assert f"`raftlog topic create {RETRY}`" in errors
