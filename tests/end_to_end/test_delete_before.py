"""Records are deleted on request over HTTP, from Python and on the command line; kills bring none back."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.errors import Conflict, InvalidRequest, OffsetOutOfRange
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import run
from tests.helpers.real_cluster import RETRYABLE, Answer, create_topic, eventually, settled

BATCHES = "application/vnd.raftlog.batch.v1"


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls)) as made:
        yield made


def delete_before(url: str, topic: str, offset: object, partition: object = 0) -> Answer:
    path = f"/v1/topics/{topic}/partitions/{partition}:delete-before"
    return settled(url, "POST", path, {"offset": offset})


def read(url: str, topic: str, position: object, accept: str = "application/json") -> Answer:
    path = f"/v1/topics/{topic}/partitions/0/records?offset={position}"
    return settled(url, "GET", path, headers={"Accept": accept})


def shown(url: str, topic: str, name: str) -> int:
    """What a broker says of partition 0: without a leader it may be old."""
    return settled(url, "GET", f"/v1/topics/{topic}/partitions/0").number(name)


def filled(client: Client, url: str, topic: str, records: int = 10, **config: int | str) -> None:
    create_topic(url, topic, **config)
    with client.producer(topic, linger="1ms") as producer:
        sent = [producer.send(f"{number}", key=f"{number}") for number in range(records)]
        assert [receipt.result().offset for receipt in sent] == [*range(records)]


# requirement: RT5 RT4
@pytest.mark.e2e
def test_deleted_records_are_gone_at_every_broker(unbroken: Cluster, client: Client) -> None:
    urls = unbroken.urls
    filled(client, urls[0], "A")
    for url in urls:  # whoever leads, and more than once
        answer = delete_before(url, "A", 4)
        assert (answer.status, answer.json) == (200, {"partition": 0, "log_start_offset": 4})
    for url in urls:
        for accept in ("application/json", BATCHES, "text/event-stream"):
            answer = read(url, "A", 3, accept)
            assert (answer.status, answer.code) == (410, "offset_out_of_range"), answer
            assert (answer.number("start"), answer.number("end")) == (4, 11)
        first = read(url, "A", "earliest")
        assert [row["offset"] for row in first.rows()] == [*range(4, 10)]
        assert first.number("log_start_offset") == 4
        assert settled(url, "GET", "/v1/topics/A/partitions/0/records/3").status == 410
    eventually(lambda: shown(urls[0], "A", "log_start_offset") == 4, what="the log start of the leader")


# requirement: RT5
@pytest.mark.e2e
def test_wrong_deletions_are_refused_with_the_field_and_the_remedy(unbroken: Cluster, client: Client) -> None:
    url = unbroken.urls[0]
    filled(client, url, "B")
    assert delete_before(url, "B", 4).number("log_start_offset") == 4
    assert delete_before(url, "B", 2).number("log_start_offset") == 4
    above = delete_before(url, "B", 12)
    assert (above.status, above.json["field"]) == (422, "offset")
    assert "send at most 11" in str(above.json["detail"])
    for offset in (-1, "x", None, 1 << 63):
        assert delete_before(url, "B", offset).status == 422
    assert delete_before(url, "B", 1, 7).code == "partition_not_found"
    assert delete_before(url, "none", 1).code == "topic_not_found"
    with client.producer("B", transactional_id="copy") as producer, producer.transaction() as transaction:
        transaction.send("open")
        eventually(
            lambda: shown(url, "B", "high_watermark") == 12,
            what="the record of the open transaction",
        )
        with pytest.raises(Conflict, match="open in B/0 from 11 on"):
            client.partitions.delete_before("B", 0, 12)
        assert client.partitions.delete_before("B", 0, 11).log_start_offset == 11
    internal = delete_before(url, "__transactions", 1)
    assert (internal.status, internal.json["field"]) == (422, "topic")
    create_topic(url, "C", cleanup_policy="compact")
    with pytest.raises(InvalidRequest, match="is compacted"):
        client.partitions.delete_before("C", 0, 0)


# requirement: RT5
@pytest.mark.e2e
def test_the_command_line_deletes(unbroken: Cluster, client: Client) -> None:
    filled(client, unbroken.urls[0], "D")
    arguments = ("partition", "delete-before", "D", "0", "--offset", "4")
    output, _ = run(unbroken, *arguments)
    assert output.split() == [b"partition", b"log_start_offset", b"0", b"4"]
    output, _ = run(unbroken, *arguments, "-o", "json")
    assert json.loads(output) == {"partition": 0, "log_start_offset": 4}
    _, errors = run(unbroken, *arguments[:-1], "99", code=1)
    assert "send at most 11" in errors
    with pytest.raises(OffsetOutOfRange):
        client.partition("D", 0).read(0)


def tailed(url: str, topic: str, offset: int) -> Iterator[int]:
    """The offsets of event streams, each of which goes on behind the one before: a lost leader ends one."""
    where = urlsplit(url)
    while True:
        with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=LIMIT_S)) as tail:
            path = f"/v1/topics/{topic}/partitions/0/records?offset={offset}"
            tail.request("GET", path, headers={"Accept": "text/event-stream"})
            stream = tail.getresponse()
            assert stream.status in (200, *RETRYABLE), stream.read()
            for line in iter(stream.readline, b""):
                if line.startswith(b"id: "):
                    offset = int(line[4:]) + 1
                    yield offset - 1


# requirement: RT5 G5
@pytest.mark.e2e
def test_readers_go_on(unbroken: Cluster, client: Client) -> None:
    url = unbroken.urls[0]
    filled(client, url, "E")
    tail = tailed(url, "E", 8)
    assert [next(tail), next(tail)] == [8, 9]
    with client.consumer("readers", "E", reset="earliest", commit_interval="100ms") as consumer:
        first = consumer.poll(f"{LIMIT_S:g}s")
        assert first is not None
        assert first.offset == 0
    assert client.partitions.delete_before("E", 0, 6).log_start_offset == 6
    with client.consumer("readers", "E", reset="earliest") as consumer:  # its offset is deleted
        following = consumer.poll(f"{LIMIT_S:g}s")
        assert following is not None
        assert following.offset == 6
    client.send("E", "new")
    assert next(tail) == 11  # 10 is the log start's own entry


# requirement: RT5 RT4 N4
@pytest.mark.e2e
def test_a_deletion_survives_kills_of_the_leader_and_of_all_brokers(cluster: Cluster) -> None:
    with Client(",".join(cluster.urls)) as client:
        filled(client, cluster.urls[0], "F")
        assert client.partitions.delete_before("F", 0, 4).log_start_offset == 4
        leader = cluster.leader("F", 0)
        cluster.kill(leader)
        survivors = [url for broker, url in enumerate(cluster.urls, 1) if broker != leader]
        for url in survivors:
            answer = eventually(
                lambda: found if (found := read(url, "F", 3)).status == 410 else None,  # noqa: B023
                what="a leader that refuses",
            )
            assert answer.number("start") == 4
        for broker in cluster.brokers:
            if broker != leader:
                cluster.kill(broker)
        cluster.start()
        for url in cluster.urls:
            statuses: set[int] = set()

            def refuses() -> bool:
                statuses.add(read(url, "F", 3).status)  # noqa: B023
                return 410 in statuses  # noqa: B023

            eventually(refuses, what="a leader that refuses")
            assert 200 not in statuses
        rows = read(cluster.urls[0], "F", "earliest").rows()
        assert [row["offset"] for row in rows] == [*range(4, 10)]
