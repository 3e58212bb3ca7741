"""``raftlog`` commands about schedules, delayed messages, queues, transactions and dead letters."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

from raftlog.records.failures import FailedRecord
from raftlog.wire import media_types, records
from tests.helpers.async_tests import beside
from tests.helpers.command_line import RAFTLOG, Commands
from tests.helpers.dead_letters import DEAD, RETRY, batch, ids, letter
from tests.helpers.http_server import serve
from tests.helpers.real_cluster import call, create_topic, produce


@pytest.fixture
def raftlog() -> Iterator[Commands]:
    with beside(serve()) as server:
        create_topic(server.url, "orders", 1, replication_factor=1)
        yield Commands(server.url)


# requirement: A5
def test_a_schedule_is_made_listed_paused_and_deleted(raftlog: Commands) -> None:
    assert "there are no schedules" in raftlog("schedule list").stderr
    create = ("schedule create orders - --id nightly --cron", "30 3 * * *")
    made = raftlog(*create, stdin=b"check")
    assert (made.stdout.strip(), "next at" in made.stderr) == ("nightly", True)
    assert "30 3 * * *" in raftlog("schedule list --topic orders").stdout
    assert '"cron"' in raftlog("schedule list --output json").stdout
    assert '"check"' in raftlog("schedule describe nightly").stdout
    assert "paused" in raftlog("schedule pause nightly").stderr
    assert json.loads(raftlog("schedule describe nightly").stdout)["state"] == "paused"
    assert "next at" in raftlog("schedule resume nightly").stderr
    assert "deleted" in raftlog("schedule delete nightly").stderr
    assert raftlog("schedule describe nightly", code=1).stdout == ""
    assert "cron" in raftlog("schedule create orders x --cron", "0 0 30 2 *", code=1).stderr


# requirement: A3
def test_delayed_messages_are_sent_listed_and_cancelled(raftlog: Commands) -> None:
    assert "there are no delayed messages" in raftlog("delayed list").stderr
    one = raftlog("delayed send orders - --delay 30m", stdin=b"check").stdout.strip()
    assert one in raftlog("delayed list --topic orders").stdout
    assert '"check"' in raftlog(f"delayed describe {one}").stdout
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert "due at" in raftlog(f"delayed reschedule {one} --deliver-at {later}").stderr
    assert "cancelled" in raftlog(f"delayed cancel {one}").stderr
    due = raftlog("delayed send orders x --delay 0ms").stdout.strip()
    assert "too late" in raftlog(f"delayed cancel {due}", code=1).stderr
    raftlog("delayed send orders x", code=2)
    raftlog("delayed send orders x --deliver-at tomorrow", code=2)


# requirement: A7
def test_a_queue_is_worked_off(raftlog: Commands) -> None:
    assert "there are no jobs" in raftlog("queue receive orders", code=1).stderr
    produce(raftlog.url, "orders", [f"letter {number}" for number in range(3)])
    table = raftlog("queue receive orders").stdout
    assert "letter 0" in table
    receipt = table.splitlines()[1].split()[0]
    assert "leased until" in raftlog(f"queue extend orders {receipt} --lease 10m").stderr
    assert "done: 1 job" in raftlog(f"queue ack orders {receipt}").stderr
    assert "letter 1" in raftlog("queue receive orders --limit 1 --ack -o json").stdout
    receipt = raftlog("queue receive orders").stdout.splitlines()[1].split()[0]
    assert "returned" in raftlog(f"queue nack orders {receipt} --delay 1h").stderr
    shown = raftlog("queue describe orders")
    assert "not ordered" in shown.stderr
    assert shown.stdout.split("\n")[1].split() == ["0", "2", "3", "0", "1", "0"]
    assert "lease_lost" in raftlog(f"queue dead-letter orders {receipt}", code=1).stderr
    raftlog("queue receive orders --lease soon", code=2)
    assert "there are no jobs" in raftlog("queue receive orders -g refunds --tags paid", code=1).stderr
    assert "records with any of paid" in raftlog("queue describe orders -g refunds").stderr
    assert "this request asks for all records" in raftlog("queue receive orders -g refunds", code=1).stderr
    assert (
        "--tags-none: 'paid' is in --tags"
        in raftlog("queue receive orders --tags paid --tags-none paid", code=2).stderr
    )
    assert "invalid_request" in raftlog("queue receive orders --lease 7d", code=1).stderr
    assert "deleted" in raftlog("queue delete orders").stderr


def prepared(raftlog: Commands, name: str) -> str:
    """The id of a transaction that is open."""
    one = call(raftlog.url, "POST", "/v1/transactions", {"transactional_id": name}).json["id"]
    assert call(raftlog.url, "POST", f"/v1/transactions/{one}:prepare").status == 200
    return str(one)


# requirement: D3
def test_open_transactions_are_listed_described_and_aborted(raftlog: Commands) -> None:
    assert raftlog("transaction list -o json").stdout == "[]\n"
    assert "there are no open transactions" in raftlog("transaction list").stderr
    one = prepared(raftlog, "sink~1")
    (shown,) = json.loads(raftlog("transaction list -o json").stdout)
    assert (shown["id"], shown["state"]) == (one, "prepared")
    assert one in raftlog("transaction list").stdout
    for name in (one, "sink~1"):
        assert json.loads(raftlog(f"transaction describe {name} -o json").stdout) == shown
    aborted = raftlog("transaction abort sink~1")
    assert "sink~1 has no open transaction" in aborted.stderr
    assert json.loads(raftlog(f"transaction describe {one} -o json").stdout)["state"] == "aborted"
    assert raftlog("transaction list -o json").stdout == "[]\n"
    assert "sink~1" in raftlog("transaction list --all").stdout


def test_an_abort_names_a_transactional_id(raftlog: Commands) -> None:
    one = prepared(raftlog, "sink~1")
    assert "give only the transactional id: sink~1" in raftlog(f"transaction abort {one}", code=2).stderr
    assert "transaction_not_found" in raftlog("transaction abort nobody", code=1).stderr


# requirement: D3
def test_offsets_in_an_open_transaction_are_described(raftlog: Commands) -> None:
    one = call(raftlog.url, "POST", "/v1/transactions", {"transactional_id": "copy-1"}).json["id"]
    body = {"group": "enrich", "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert call(raftlog.url, "POST", f"/v1/transactions/{one}:add-offsets", body).status == 200
    assert json.loads(raftlog("transaction describe copy-1 -o json").stdout)["groups"] == ["enrich"]
    assert "enrich" in raftlog("transaction list").stdout
    pending = {"topic": "orders", "partition": 0, "offset": 0, "transaction": one}
    assert raftlog.parsed("group describe enrich")["pending"] == [pending]
    assert str(one) in raftlog("group describe enrich").stdout


# requirement: C6 ST1
def test_a_group_is_shown_with_the_owners_of_partitions_and_both_offsets(raftlog: Commands) -> None:
    produce(raftlog.url, "orders", ["a", "b", "c"])
    joined = call(raftlog.url, "POST", "/v1/groups/mail/members", {"topics": ["orders"], "member_id": "m"})
    generation = {"generation": joined.json["generation"]}
    path = "/v1/groups/mail/members/m:sync"
    assert call(raftlog.url, "POST", path, {**generation, "assignments": "auto"}).status == 200
    place = {"topic": "orders", "partition": 0, "offset": 2}
    commit = {**generation, "member_id": "m", "offsets": [place]}
    assert call(raftlog.url, "PUT", "/v1/groups/mail/offsets", commit).status == 204
    shown = json.loads(raftlog("group describe mail -o json").stdout)
    assert shown["group"]["members"][0]["assignment"] == [{"topic": "orders", "partitions": [0]}]
    (offset,) = shown["offsets"]
    assert (offset["last_consumed_offset"], offset["committed_offset"], offset["lag"]) == (1, 2, 1)
    table = [line.split() for line in raftlog("group describe mail").stdout.splitlines()]
    assert ["orders/0" in line for line in table if line[:1] == ["m"]] == [True]
    assert table[-1][:6] == ["orders", "0", "1", "2", "3", "1"]


class DeadLetters(Commands):
    """Commands about group ``mail`` of topic ``orders``."""

    def run(self, name: str, *arguments: str, code: int = 0) -> Result:
        """A command that ends with this code."""
        return self(f"dead-letter {name} orders --group mail", *arguments, code=code)

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
        path = records.FETCH.at(topic=DEAD, partition=0)
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
    assert table.stdout.splitlines()[1].split()[:3] == ["orders/0/1", "1970-01-01T00:00:02.001Z", "5"]
    assert "more than 2" in table.stderr
    assert "\x1b" not in table.stdout
    assert len(table.stdout.splitlines()) == 3
    shown = dlq.run("describe", "orders/0/1").stdout
    assert "reason: ValueError: no such user\n" in shown
    assert "header h: \\xff\n" in shown
    assert shown.endswith('\n{"a":1}\n')
    whole = json.loads(dlq.run("describe", "orders/0/1", "-o", "json").stdout)
    assert (whole["value"], whole["encoding"], whole["tags"]) == ({"a": 1}, "json", ["t"])
    assert whole == call(dlq.url, "GET", "/v1/dead-letters/orders/mail?id=orders/0/1").rows("items")[0]
    assert "no value" in dlq.run("describe", "orders/0/3").stderr


def test_dead_letters_are_redriven_and_discarded(dlq: DeadLetters) -> None:
    # requirement: A7
    assert "3 dead letters would be redriven; nothing" in dlq.run("redrive", "--all", "--dry-run").stderr
    assert len(dlq.open()) == 3
    assert dlq.run("redrive", "--id", "orders/0/1").stderr == "1 redriven\n"
    again = dlq.run("redrive", "--id", "orders/0/1", "--id", "orders/0/2", code=1)
    assert "1 redriven\n" in again.stderr
    assert "orders/0/1; `raftlog dead-letter list orders --group mail`" in again.stderr
    assert (
        json.loads(dlq.run("discard", "--all", "--limit", "5", "-o", "json").stdout)[0]["id"] == "orders/0/3"
    )
    assert dlq.run("list").stderr == "there are no dead letters\n"
    assert "dead-letter list" in dlq.run("describe", "orders/0/1", code=1).stderr


def test_letters_that_are_discarded_without_output_have_an_unknown_outcome(dlq: DeadLetters) -> None:
    discard = shlex.join(
        [*RAFTLOG, "dead-letter", "discard", "orders", "-g", "mail", "--all", "--url", dlq.url]
    )
    done = subprocess.run(["sh", "-c", f"{discard} >/dev/full"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert dlq.open() == []


def test_characters_that_the_output_cannot_have_are_escaped(commands: DeadLetters) -> None:
    commands.topic(DEAD, **{"cleanup.policy": "compact"})
    commands.add(letter(1, reason="ValueError: 利用者"))
    shown = [
        subprocess.run(
            [*RAFTLOG, "dead-letter", *word.split(), "orders", "-g", "mail", "--url", commands.url],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        )
        for word in ("list", "discard --all")
    ]
    assert [(each.returncode, r"\u5229\u7528\u8005" in each.stdout) for each in shown] == 2 * [(0, True)]
    assert commands.open() == []


@pytest.mark.parametrize("arguments", [(), ("--limit", "5"), ("--all", "--key", "u1")])
def test_a_selection_is_needed(dlq: DeadLetters, arguments: tuple[str, ...]) -> None:
    for name in ("redrive", "discard"):
        assert "or --all" in dlq.run(name, *arguments, code=2).stderr
    assert len(dlq.open()) == 3


def test_an_error_names_the_option(dlq: DeadLetters) -> None:
    for name in ("list", "redrive"):
        assert "--id: 'orders' is not an id" in dlq.run(name, "--id", "orders", code=1).stderr


def test_a_missing_topic_is_explained_with_commands(commands: DeadLetters) -> None:
    for name in ("list", "redrive", "discard"):
        arguments = () if name == "list" else ("--all",)
        errors = commands.run(name, *arguments, code=1).stderr
        assert errors.startswith("error (topic_not_found): group 'mail' has no dead letters of 'orders'")
        assert "`raftlog topic list`" in errors
    commands.topic(DEAD)
    errors = commands.run("redrive", "--all", code=1).stderr
    assert f"`raftlog topic create {RETRY}`" in errors
