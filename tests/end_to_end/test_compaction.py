"""A compacted topic on real brokers, across restarts, kills and a new disk."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.testing.segment_content import content_of
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import (
    RETRYABLE,
    Json,
    call,
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    records_path,
    surely,
)

pytestmark = pytest.mark.e2e

TOPIC = "orders"
KEYS = 5


def write(cluster: Cluster, first: int, last: int) -> None:
    """Each value under one of a few keys; every one is acknowledged."""
    for number in range(first, last + 1):
        body = {"records": [{"key": f"k{number % KEYS}", "value": f"v{number} {'x' * 150}"}]}

        def stored(body: Json = body, number: int = number) -> bool:
            url = cluster.url(cluster.running[number % len(cluster.running)])
            answer = call(url, "POST", records_path(TOPIC), body)
            assert answer.status in (200, 201, *RETRYABLE), answer
            return answer.status < 300

        eventually(stored, what=f"value {number} is stored")


def newest(url: str) -> dict[object, int]:
    """The number in the newest value of each key, read from the log start on."""
    found: dict[object, int] = {}
    offset = 0
    while True:
        path = f"{records_path(TOPIC)}?offset={offset}&max_bytes=500"
        answer = surely([url], "GET", path, None, random.Random(offset))
        assert answer.status in (200, 204), answer
        for row in answer.rows():
            found[row["key"]] = int(str(row["value"]).split()[0][1:])
            assert int(str(row["offset"])) >= offset
        following = int(answer.headers["raftlog-next-offset"])
        if following >= int(answer.headers["raftlog-high-watermark"]):
            return found
        assert following > offset
        offset = following


def read_by_the_client(url: str) -> dict[object, int]:
    """The same, with the Python client."""
    found: dict[object, int] = {}
    with Client(url.replace("http", "raftlog"), retry_timeout=f"{LIMIT_S:g}s") as client:
        partition, offset = client.partition(TOPIC, 0), 0
        while True:
            chunk = partition.read(offset, limit=3)
            for message in chunk:
                assert message.offset >= offset
                found[_text(message.key)] = int(_text(message.value).split()[0][1:])
            if chunk.next_offset == offset:
                return found
            offset = chunk.next_offset


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def expected(last: int) -> dict[object, int]:
    return {f"k{number % KEYS}": number for number in range(last - KEYS + 1, last + 1)}


def size_of(cluster: Cluster, broker: int) -> int:
    """Bytes of the segments of the partition's replica on one broker."""
    segments = cluster.data_directory(broker).glob(f"{TOPIC}-*/Partition-0/*.log")
    return sum(len(content_of(path.read_bytes())) for path in segments)


def is_small(cluster: Cluster) -> bool:
    """Whether every running broker has compacted most of its log."""
    return all(0 < size_of(cluster, broker) < 10_000 for broker in cluster.running)


def served_by_each_broker_in_turn(cluster: Cluster, last: int) -> None:
    """Each replica leads once and serves the newest values."""
    for broker in cluster.brokers:

        def leads(broker: int = broker) -> bool:
            url = cluster.url(broker)
            if partitions_of(url, TOPIC)[0]["leader"] == broker:
                return True
            call(url, "POST", f"/v1/topics/{TOPIC}/partitions/0:transfer-leadership", {"to": broker})
            return False

        eventually(leads, what=f"broker {broker} leads")
        found = newest(cluster.url(broker))
        assert found == expected(last), json.dumps(found, default=str)


def test_the_newest_value_of_each_key_survives_kills_and_a_new_disk(tmp_path: Path) -> None:
    with Cluster(
        tmp_path, environment={"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "300"}
    ) as cluster:
        config = {"cleanup_policy": "compact", "segment_bytes": 2048}
        create_topic(cluster.urls[0], TOPIC, **config)
        body = {"records": [{"value": "v"}]}
        refused = surely(cluster.urls, "POST", records_path(TOPIC), body, random.Random(1))
        assert (refused.status, refused.code) == (422, "invalid_record"), refused
        assert "cleanup.policy" in str(refused.json["detail"])
        write(cluster, 0, 99)
        eventually(lambda: is_small(cluster), what="all logs are compacted")
        assert newest(cluster.urls[0]) == expected(99)
        assert read_by_the_client(cluster.urls[0]) == expected(99)

        assert cluster.stop_all() == [0, 0, 0]
        cluster.start()
        eventually(lambda: has_leaders(cluster.urls[0], TOPIC, 1), what="a leader")
        served_by_each_broker_in_turn(cluster, 99)

        killed = cluster.leader(TOPIC, 0)
        cluster.kill(killed)
        write(cluster, 100, 179)
        eventually(lambda: is_small(cluster), what="the logs are compacted again")
        cluster.start(killed)
        served_by_each_broker_in_turn(cluster, 179)

        lost = cluster.brokers[0]
        cluster.kill(lost)
        shutil.rmtree(cluster.data_directory(lost))
        write(cluster, 180, 259)
        cluster.start(lost)
        eventually(lambda: size_of(cluster, lost) > 0, what="the replica is back")
        served_by_each_broker_in_turn(cluster, 259)
        eventually(lambda: is_small(cluster), what="the new log is compacted, too")
        served_by_each_broker_in_turn(cluster, 259)
        assert cluster.broken() == []
