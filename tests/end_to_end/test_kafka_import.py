"""``raftlog import`` from a real Kafka: killed, repeated, while it follows, and the positions of groups."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.client.messages import Message
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import command, run
from tests.helpers.documented_commands import blocks_of, is_as_shown
from tests.helpers.real_cluster import create_topic, eventually
from tests.helpers.real_kafka import PARTITIONS, Copied, Kafka, kafka_broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as address:
        yield Kafka(address)


def messages(client: Client, topic: str) -> list[Message]:
    """All committed records of a topic here."""
    found: list[Message] = []
    for number in range(client.topics.describe(topic).partitions):
        partition, at = client.partition(topic, number), 0
        end = partition.offset_at("latest")  # a read alone may meet a leader that knows an old end
        while at < end:
            chunk = partition.read(at)
            found += chunk.messages
            at = chunk.next_offset
    return found


def log(client: Client, topic: str) -> list[Copied]:
    return [
        (one.partition, one.timestamp_ms, one.key, one.value, one.headers) for one in messages(client, topic)
    ]


def kill_while_it_copies(cluster: Cluster, client: Client, source: str, topic: str, wait_s: float) -> None:
    """Kill a run at any time after it has begun."""
    with command(cluster, "import", source) as process:
        eventually(
            lambda: process.poll() is not None or any(one.name == topic for one in client.topics.list()),
            what="a run that has begun",
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
        process.kill()


# requirement: A13
def test_killed_runs_copy_each_record_once(unbroken: Cluster, kafka: Kafka) -> None:
    source = kafka.create("storm")
    kafka.send("storm", 60, records=1_000)
    kafka.delete_before("storm", 1, 700)
    expected = [record for _, record in kafka.log("storm")]
    rng = random.Random(8)
    with Client(unbroken.bootstrap) as client:
        for _ in range(3):
            kill_while_it_copies(unbroken, client, source, "storm", rng.uniform(0.2, 2))
        at_once = [command(unbroken, "import", source, "-o", "json") for _ in range(2)]
        ended = [one.communicate(timeout=2 * LIMIT_S) for one in at_once]
        assert 0 in [one.returncode for one in at_once], ended
        shown = json.loads(run(unbroken, "import", source, "-o", "json")[0])
        assert log(client, "storm") == expected
        assert [(each["kafka_records"], each["records"]) for each in shown["partitions"]] == [
            (count := sum(record[0] == number for record in expected), count) for number in PARTITIONS
        ]
        config = client.topics.describe("storm").config
        assert (config["retention.ms"], config["message.timestamp.type"]) == (-1, "CreateTime")


# requirement: A13
def test_a_group_goes_on_with_the_first_record_that_it_has_not_consumed(
    unbroken: Cluster, kafka: Kafka
) -> None:
    source = kafka.create("jobs")
    kafka.send("jobs", 9, partitions=PARTITIONS[:2])
    kafka.delete_before("jobs", 0, 25)
    offsets = {f"at-{at}": {0: at, 1: at + 1} for at in (0, 20, 31, 40, 47, 200)}
    offsets["at-200"] = dict.fromkeys((0, 1), 9 * 11)
    for group, committed in offsets.items():
        kafka.commit(group, "jobs", committed)
    there = kafka.log("jobs")
    ends = {number: max(at for at, record in there if record[0] == number) + 1 for number in (0, 1)}
    with Client(unbroken.bootstrap) as client:
        for _ in range(2):  # the second time nothing changes
            told = json.loads(run(unbroken, "import", source, "--groups", "all", "-o", "json")[0])
        here = messages(client, "jobs")
        for group, committed in offsets.items():
            shown = {each.partition: each.committed_offset for each in client.groups.offsets(group)}
            for number, at in committed.items():
                left = [one for offset, one in there if one[0] == number and offset >= at]
                assert [
                    (one.partition, one.timestamp_ms, one.key, one.value, one.headers)
                    for one in here
                    if one.partition == number and one.offset >= shown[number]
                ] == left, (group, number, at, ends)
        states = {each["state"] for each in told["groups"] if each["group"].startswith("at-")}
        assert states == {"unchanged"}
        client.groups.commit("at-0", {("jobs", 0): here[5].offset})
        run(unbroken, "import", source, "--groups", "at-0")
        assert {each.partition: each.committed_offset for each in client.groups.offsets("at-0")}[0] == here[
            5
        ].offset


# requirement: A13
def test_it_follows_a_topic_until_it_is_ended(unbroken: Cluster, kafka: Kafka) -> None:
    source = kafka.create("live")
    with Client(unbroken.bootstrap) as client, command(unbroken, "import", source, "--follow") as process:
        for round_ in (1, 2):
            kafka.send("live", 3)
            eventually(
                lambda n=40 * round_: (
                    any(one.name == "live" for one in client.topics.list()) and len(log(client, "live")) == n
                ),
                what="records of Kafka",
            )
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=2 * LIMIT_S)
        assert process.returncode == 0, told
        assert log(client, "live") == [record for _, record in kafka.log("live")]
    assert len(shown.splitlines()) == 1 + len(PARTITIONS)


def test_what_cannot_be_imported_is_refused_and_says_why(
    unbroken: Cluster, kafka: Kafka, tmp_path: Path
) -> None:
    def refusal(*arguments: str, code: int = 1) -> str:
        return run(unbroken, "import", *arguments, code=code)[1]

    source = kafka.create("odd")
    create_topic(unbroken.urls[0], "narrow", 2)
    create_topic(unbroken.urls[0], "stamped", 3)
    assert "Kafka cluster has no topic 'none'" in refusal(f"kafka://{kafka.address}/none")
    assert "topic narrow has 2 partitions, but odd in Kafka has 3" in refusal(source, "--into", "narrow")
    assert "message.timestamp.type=CreateTime" in refusal(source, "--into", "stamped")
    assert "is not an address such as kafka://localhost:9092/orders" in refusal("localhost", code=2)
    assert "Kafka does not answer at 127.0.0.1:9" in refusal("kafka://127.0.0.1:9/t", code=4)
    run(unbroken, "import", source)
    kafka.send("odd", 2)
    kafka.delete_before("odd", 0, 10)
    kafka.send("odd", 2)
    told = refusal(source)
    assert told == "partition 0: Kafka has deleted offsets 0 to 9 since the last run; they are not copied\n"
    run(unbroken, "import", source)
    other = kafka.create("other")
    assert "the topic has records of Kafka's topic odd" in refusal(other, "--into", "odd")
    assert "group nobody has committed no offset" in refusal(source, "--groups", "nobody")


# requirement: A13
def test_a_topic_is_imported_as_the_page_shows(unbroken: Cluster, kafka: Kafka) -> None:
    kafka.create("payments")
    kafka.send("payments", 4)
    kafka.commit("billing", "payments", {0: 10, 1: 20, 2: 26})
    shown = [step for block in blocks_of(PAGE) for step in block.commands if "payments" in step.command]
    assert len(shown) >= 2
    for step in shown:
        words = step.command.replace("localhost:9092", kafka.address).split()
        output, errors = run(unbroken, *words[1:])
        assert is_as_shown(step.output, errors + output.decode()), step.command
