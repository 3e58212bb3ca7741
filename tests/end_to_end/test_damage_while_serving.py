"""A bit that flips in the active segment of a running leader: never served, repaired, readable again."""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from raftlog import Client, CorruptBatch
from raftlog.records.batch import check_batch, split_batches
from raftlog.records.reader import read_records
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import media_types
from tests.helpers.damage import flip_a_byte, logs_of
from tests.helpers.real_cluster import (
    RETRYABLE,
    Answer,
    call,
    create_topic,
    eventually,
    produce_surely,
    read_all,
    records_path,
)

pytestmark = pytest.mark.e2e

RECORDS, DAMAGED = 20, 17
GOOD = [f"value-{number}-{'x' * 50}" for number in range(RECORDS)]

Values = list[object]
Read = Callable[[str, str], Values | None]
"""The values that one read at one broker shows, None when it is to be tried again."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """Three brokers for all kinds of reads; each has a topic of its own."""
    with tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name, Cluster(Path(name)) as cluster:
        yield cluster


def get(url: str, path: str, accept: str = media_types.JSON) -> Answer | None:
    answer = call(url, "GET", path, headers={"Accept": accept})
    assert answer.status in (200, *RETRYABLE), answer
    return answer if answer.status == 200 else None


def batches(url: str, topic: str) -> Values | None:
    answer = get(url, f"{records_path(topic)}?offset=0", media_types.BATCH)
    if answer is None:
        return None
    found: Values = []
    for batch in split_batches(answer.body):
        check_batch(batch)
        if not batch.header.is_control:
            found += [(record.value or b"").decode() for record in read_records(batch)]
    return found


def shown(url: str, path: str) -> Values | None:
    answer = get(url, path)
    return None if answer is None else [row["value"] for row in answer.rows()]


def as_json(url: str, topic: str) -> Values | None:
    return shown(url, f"{records_path(topic)}?offset=0")


def last_five(url: str, topic: str) -> Values | None:
    return shown(url, f"{records_path(topic)}?offset=-5")


def since_a_time(url: str, topic: str) -> Values | None:
    return shown(url, f"{records_path(topic)}?offset=timestamp:1")


def one_message(url: str, topic: str) -> Values | None:
    first = int(str(get_surely(url, f"{records_path(topic)}?offset=0&limit=1").rows()[0]["offset"]))
    answer = get(url, f"/v1/topics/{topic}/partitions/0/records/{first + DAMAGED}")
    return None if answer is None else [answer.json["value"]]


def get_surely(url: str, path: str) -> Answer:
    return eventually(lambda: get(url, path), what=path)


def event_stream(url: str, topic: str) -> Values | None:
    """As much as one stream shows before it ends or has shown everything."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=LIMIT_S)
    found: Values = []
    try:
        connection.request(
            "GET", f"{records_path(topic)}?offset=0", headers={"Accept": media_types.EVENT_STREAM}
        )
        answer = connection.getresponse()
        if answer.status != 200:
            return None
        while len(found) < RECORDS:
            line = answer.readline()
            if not line or line == b"event: problem\n":
                break
            if line.startswith(b"data: ") and b'"value"' in line:
                found.append(json.loads(line[6:])["value"])
    finally:
        connection.close()
    return found


def client_tail(url: str, topic: str) -> Values | None:
    found: Values = []
    with Client(url) as client:
        for message in client.partition(topic, 0).tail(0):
            found.append((message.value or b"").decode())
            if len(found) == RECORDS:
                return found
    return found


KINDS: dict[str, tuple[Read, Values]] = {
    "batches": (batches, [*GOOD]),
    "json": (as_json, [*GOOD]),
    "last-n": (last_five, [*GOOD[-5:]]),
    "by-time": (since_a_time, [*GOOD]),
    "message": (one_message, [GOOD[DAMAGED]]),
    "stream": (event_stream, [*GOOD]),
    "tail": (client_tail, [*GOOD]),
}


def flip_in_active_segment(cluster: Cluster, broker: int, topic: str) -> None:
    """One bit of the value of one record, behind the back of the broker that has the file open."""
    path = sorted(cluster.data_directory(broker).glob(f"{topic}-*/Partition-0/*.log"))[-1]
    value = f"value-{DAMAGED}-".encode()
    flip_a_byte(path, path.read_bytes().index(value) + len(value))


# requirement: M3
@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_the_active_segment_is_never_served_and_is_repaired(brokers: Cluster, kind: str) -> None:
    read, good = KINDS[kind]
    create_topic(brokers.urls[0], kind, 1)
    for value in GOOD:
        produce_surely(brokers.urls, kind, [value])
    leader = brokers.leader(kind, 0)
    repairs = brokers.metric("raftlog_repairs_total", broker=leader)
    found_before = brokers.metric("raftlog_damaged_logs_total", broker=leader)
    flip_in_active_segment(brokers, leader, kind)

    def whole() -> bool:
        try:
            seen = read(brokers.url(leader), kind)
        except CorruptBatch as error:
            raise AssertionError(f"a client was sent damaged bytes: {error}") from None
        damaged = [value for value in seen or () if value not in GOOD]
        assert not damaged, f"served: {damaged}"
        return seen == good

    def is_repaired() -> bool:
        """A replica that is led by another one does not read its damage: then it gets the lead back."""
        if brokers.metric("raftlog_damaged_logs_total", broker=leader) == found_before:
            path = f"/v1/topics/{kind}/partitions/0:transfer-leadership"
            call(brokers.url(leader), "POST", path, {"to": leader})
            whole()
        return brokers.metric("raftlog_repairs_total", broker=leader) == repairs + 1

    eventually(whole, what="the whole partition, read at the broker with the damage")
    eventually(is_repaired, what="the replica is repaired")
    assert brokers.metric("raftlog_damaged_logs_total", broker=leader) == found_before + 1
    eventually(lambda: len(logs_of(brokers, kind)) == 1, what="all replicas are equal again")
    assert [value for _, value in read_all(brokers.url(leader), kind)] == GOOD
    eventually(
        lambda: brokers.metric("raftlog_failed_replicas", broker=leader) == 0,
        what="the replica is open again",
    )
