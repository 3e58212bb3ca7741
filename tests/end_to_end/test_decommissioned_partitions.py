"""Fewer partitions: producers move on, consumers read to the end, the partition goes after its retention."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client, Consumer
from raftlog.errors import RaftlogError
from raftlog.records.keys import partition_for_key
from tests.helpers.command_line import run
from tests.helpers.real_cluster import call, create_topic, eventually

RETENTION_S = 5.0
LAST = 2
TIMING = {"RAFTLOG_TIMING__RETENTION_CHECK_MS": "200"}


@pytest.fixture
def three(directory: Path) -> Iterator[Cluster]:
    """Three brokers of the test's own that look at retention often."""
    with Cluster(directory, brokers=3, environment=TIMING) as brokers:
        yield brokers


class Sending:
    """A producer on a thread of its own. Errors that a user would see are in ``errors``."""

    def __init__(self, client: Client, topic: str) -> None:
        self.acknowledged: list[tuple[str, int]] = []  # value and partition
        self.errors: list[RaftlogError] = []
        self._client = client
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self, count: int = 200) -> None:
        """Return once as many more records are acknowledged."""
        goal = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= goal, what="more acknowledged records")

    def _send(self) -> None:
        number = 0
        with self._client.producer(self._topic, linger="1ms") as producer:
            while not self._stopping.is_set():
                values = [f"{number + each}" for each in range(10)]
                number += len(values)
                sent = [producer.send(value, key=f"k{int(value) % 97}") for value in values]
                for value, pending in zip(values, sent, strict=True):
                    try:
                        self.acknowledged.append((value, pending.result().partition))
                    except RaftlogError as error:
                        self.errors.append(error)


class Reading:
    """A member of a group on a thread of its own."""

    def __init__(self, client: Client, topic: str) -> None:
        self.seen: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._consumer: Consumer = client.consumer(
            "readers", topic, reset="earliest", session_timeout="3s", commit_interval="100ms"
        )
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def partitions(self) -> set[int]:
        """The partitions of this member."""
        return {target.partition for target in self._consumer.assignment}

    def _read(self) -> None:
        with self._consumer as consumer:
            while not self._stopping.is_set():
                message = consumer.poll("100ms")
                if message is not None:
                    self.seen[message.value.decode()] += 1


def count(cluster: Cluster) -> list[object]:
    """How many partitions each broker knows of."""
    return [call(url, "GET", "/v1/topics/A").json.get("partitions") for url in cluster.urls]


def folders(cluster: Cluster) -> list[Path]:
    """The replicas of the last partition on all disks."""
    found = (cluster.data_directory(broker).glob(f"A-*/Partition-{LAST}") for broker in (1, 2, 3))
    return [path for paths in found for path in paths]


# requirement: F5 K6 G11
@pytest.mark.e2e
def test_a_partition_is_decommissioned_under_load(three: Cluster) -> None:
    """Requirement F5 with its numbers: the third of three partitions. A later one continues its offsets."""
    create_topic(three.urls[0], "A", 3, retention_ms=int(RETENTION_S * 1000))
    key = next(f"d{n}" for n in range(99) if partition_for_key(f"d{n}".encode(), 3) == LAST)
    with (
        Client(three.bootstrap) as client,
        Sending(client, "A") as load,
        Reading(client, "A") as reading,
    ):
        load.wait_for_more()
        eventually(lambda: reading.partitions == {0, 1, 2}, what="all partitions")
        delayed = {"records": [{"key": key, "value": "delayed"}]}
        assert call(three.urls[0], "POST", "/v1/topics/A/records?delay=2s", delayed).status == 200

        began = time.monotonic()
        output, errors = run(three, "topic", "decommission-partitions", "A", "-p", str(LAST), "-o", "json")
        assert len(folders(three)) == 3
        assert (json.loads(output)["decommissioned"], errors) == ([LAST], "")
        for url in three.urls:
            refused = call(
                url, "POST", f"/v1/topics/A/partitions/{LAST}/records", {"records": [{"value": 1}]}
            )
            assert (refused.status, refused.code) == (409, "partition_decommissioned")
            assert refused.json["retryable"] is False
            assert "send to one of 0 to 1, or name no partition" in str(refused.json["detail"])
            spread = call(url, "POST", "/v1/topics/A/records", {"records": [{"key": key, "value": "x"}]})
            assert spread.status in (200, 503), spread
        again = client.topics.decommission_partitions("A", [LAST])
        assert again.decommissioned == [LAST], "a repetition changes nothing"
        stopped = len(load.acknowledged)
        end = client.partition("A", LAST).offsets("latest")
        load.wait_for_more(300)
        assert {partition for _, partition in load.acknowledged[stopped + 20 :]} == {0, 1}

        eventually(lambda: count(three) == [2, 2, 2], what="the partition is removed")
        assert time.monotonic() - began >= RETENTION_S - 1.0, "not before its retention has passed"
        eventually(lambda: not folders(three), what="no replica on any disk")
        eventually(lambda: reading.partitions == {0, 1}, what="the group has rebalanced")
        load.wait_for_more()
        gone = call(three.urls[0], "GET", f"/v1/topics/A/partitions/{LAST}/records?offset=earliest")
        assert (gone.status, gone.code) == (404, "partition_not_found")
        assert reading.seen["delayed"] == 1

        assert client.topics.add_partitions("A", 1, expected=2).partitions == 3
        receipt = client.send("A", "again", partition=LAST)
        assert receipt.offset > end, "no offset names two records"
        eventually(lambda: reading.seen["again"] == 1, what="the record of the new partition")
        load.wait_for_more()
        done = list(load.acknowledged)
        eventually(lambda: {value for value, _ in done} <= reading.seen.keys(), what="all records")
        assert load.errors == []
        assert len({value for value, _ in done}) == len(done)


# requirement: F5 F4
@pytest.mark.e2e
def test_what_cannot_be_decommissioned_is_refused_with_a_remedy(unbroken: Cluster) -> None:
    url, path = unbroken.urls[0], "/v1/topics/shrinking/partitions:decommission"
    create_topic(url, "shrinking", 3, cleanup_policy="compact")
    record = {"records": [{"key": "k", "value": 1, "partition": 2}]}
    assert call(url, "POST", "/v1/topics/shrinking/records", record).status == 200
    for body, status, text in (
        ({"count": 3}, 422, "send 1 to 2, or delete the topic"),
        ({"count": 9}, 422, "send 1 to 2, or delete the topic"),
        ({"partitions": [0]}, 422, "keys map to the partitions 0 to n - 1"),
        ({"partitions": [0, 1, 2]}, 422, "keep one at least, or delete the topic"),
        ({"partitions": [7]}, 404, "has the partitions 0 to 2, not 7"),
        ({"count": 1, "expected": 2}, 412, "have changed: it has 3, of which 3 take records"),
        ({"count": 1, "partitions": [2]}, 422, "one of the two"),
        ({}, 422, "one of the two"),
    ):
        refused = call(url, "POST", path, body)
        assert refused.status == status, (body, refused)
        assert text in str(refused.json["detail"])
    assert call(url, "POST", path.replace("shrinking", "none"), {"count": 1}).code == "topic_not_found"
    output, errors = run(unbroken, "topic", "decommission-partitions", "shrinking", "--count", "1")
    assert "warning: topic shrinking is compacted" in errors
    assert "keeps its records for ever (cleanup.policy is compact)" in errors
    assert output.split()[-3:] == [b"shrinking", b"3", b"2"]
    assert call(url, "GET", "/v1/topics/shrinking").json["decommissioned"] == [2]
    states = [row["state"] for row in call(url, "GET", "/v1/topics/shrinking/partitions").rows("items")]
    assert states == ["active", "active", "decommissioned"]
    refused = call(url, "POST", "/v1/topics/shrinking/partitions:add", {"count": 1})
    assert (refused.status, refused.code) == (409, "conflict")
    assert "partitions [2] of topic 'shrinking' are decommissioned" in str(refused.json["detail"])
    output, _ = run(unbroken, "topic", "recommission-partitions", "shrinking")
    assert output.split()[-3:] == [b"shrinking", b"3", b"-"]
    assert call(url, "POST", "/v1/topics/shrinking/records", record).status == 200
