"""``raftlog topic``, ``partition`` and ``cluster`` with the HTTP application of a broker."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest

from tests.helpers.async_tests import beside
from tests.helpers.command_line import Commands
from tests.helpers.fake_admin import FakeAdmin
from tests.helpers.http_server import serve


class Terminal(io.BytesIO):
    """Input that somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def raftlog() -> Iterator[Commands]:
    with beside(serve()) as server:
        admin = server.cluster.services.admin
        assert isinstance(admin, FakeAdmin)
        admin.moves_at_once = True
        yield Commands(server.url)


def test_a_topic_is_made_shown_changed_and_deleted(raftlog: Commands) -> None:
    raftlog("topic create life --partitions 2 --config retention.ms=1m")
    assert "topic_exists" in raftlog.refusal("topic create life")
    found = json.loads(raftlog("topic describe life -o json").stdout)
    assert found["topic"]["config"]["retention.ms"] == 60_000
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1]
    changed = raftlog("topic alter life --reset retention.ms --config segment.ms=5 -o json")
    config = json.loads(changed.stdout)["config"]
    assert (config["retention.ms"], config["segment.ms"]) == (14 * 24 * 3600 * 1000, 5)
    assert "life" in raftlog("topic list").stdout
    assert "life" in raftlog("topic list l?fe").stdout
    unmatched = raftlog("topic list x*")
    assert (unmatched.stdout, unmatched.stderr) == ("", "no topic matches x*\n")
    assert raftlog("topic list x* -o json").stdout == "[]\n"
    raftlog("topic delete life --yes")
    assert "topic_not_found" in raftlog.refusal("topic describe life")


# requirement: N6
def test_a_preset_is_chosen_when_a_topic_is_made_or_changed(raftlog: Commands) -> None:
    def config(command: str) -> tuple[object, object]:
        found = json.loads(raftlog(f"topic {command} -o json").stdout)["config"]
        return found["validate.records"], found["replica.lag.max.ms"]

    assert config("create clicks --preset throughput") == (False, 10_000)
    assert config("alter clicks --preset latency --config replica.lag.max.ms=3s") == (True, 3_000)
    assert "choose 'latency', 'throughput'" in raftlog("topic alter clicks --preset fast", code=2).stderr
    raftlog("topic delete clicks --yes")


def test_errors_say_what_is_right(raftlog: Commands) -> None:
    raftlog("topic create right")
    assert "the settings are" in raftlog.refusal("topic alter right --config retention=5")
    assert "did you mean retention.ms?" in raftlog.refusal("topic alter right --config retntion.ms=5")
    assert raftlog.refusal("topic create l2 --replication-factor 2").startswith(
        "error (invalid_request): --replication-factor is 2;"
    )
    wanted = "there is no topic 'rights'; did you mean 'right'? `raftlog topic list` shows all topics"
    assert raftlog.refusal("consume rights") == f"error (topic_not_found): {wanted}\n"


def test_deleting_on_a_terminal_asks_for_the_name(raftlog: Commands) -> None:
    raftlog("topic create dear")
    raftlog("schedule create dear x --id nightly --cron", "0 3 * * *")
    for typed, code in (("deer", 1), ("dear", 0)):
        assert raftlog("topic list dear").stdout
        result = raftlog("topic delete dear", code=code, stdin=Terminal(typed.encode() + b"\n"))
        assert result.stderr.startswith("1 schedule will fail\n")
        assert "Type its name" in result.stderr
    assert raftlog("topic list dear").stdout == ""


def test_the_cluster_and_its_brokers_are_shown(raftlog: Commands) -> None:
    assert raftlog.parsed("cluster describe")["brokers"] == 3
    brokers = json.loads(raftlog("broker list -o json").stdout)
    assert [broker["http"] for broker in brokers] == [f"http://127.0.0.1:{7069 + n}" for n in (1, 2, 3)]


# requirement: F2, F6
def test_partitions_are_listed_led_by_another_broker_and_held_by_fewer(raftlog: Commands) -> None:
    raftlog("topic create moved")
    assert raftlog.parsed("partition transfer-leadership moved 0 --to 2")["leader"] == 2
    shown = raftlog.parsed("partition remove-replica moved 0 1 --wait 20s")
    assert (shown["replicas"], shown["reassignment"]) == ([2, 3], None)
    set_again = raftlog("partition set-replicas moved 0 2,3,1 --wait 20s").stdout
    assert set_again.splitlines()[1].split()[-1] == "settled"
    assert json.loads(raftlog("partition list moved -o json").stdout)[0]["replicas"] == [2, 3, 1]
    assert "no broker 9" in raftlog.refusal("partition add-replica moved 0 9")
    assert "partition_not_found" in raftlog.refusal("partition transfer-leadership moved 7")


# requirement: F5
def test_partitions_are_decommissioned_with_warnings_and_recommissioned(raftlog: Commands) -> None:
    raftlog("topic create shrinking --partitions 3 --config cleanup.policy=compact")
    result = raftlog("topic decommission-partitions shrinking --count 1")
    assert "warning: topic shrinking is compacted" in result.stderr
    assert "keeps its records forever (cleanup.policy is compact)" in result.stderr
    assert result.stdout.split()[-3:] == ["shrinking", "3", "2"]
    states = [row.split()[-1] for row in raftlog("partition list shrinking").stdout.splitlines()[1:]]
    assert states == ["settled", "settled", "decommissioned"]
    again = raftlog.parsed("topic decommission-partitions shrinking -p 2")
    assert (again["partitions"], again["decommissioned"]) == (3, [2])
    assert raftlog("topic recommission-partitions shrinking").stdout.split()[-3:] == ["shrinking", "3", "-"]
    assert "topic_not_found" in raftlog.refusal("topic decommission-partitions none --count 1")
