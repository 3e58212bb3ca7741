"""Clients that lie, hang up and wait, against real brokers."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from select import select

import pytest

from chaos.cluster import Cluster
from raftlog.testing.segment_content import content_of
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import media_types
from tests.helpers.real_cluster import (
    RETRYABLE,
    Answer,
    connect,
    create_topic,
    delete_topic,
    eventually,
    produce_surely,
    read_all,
    records_path,
    settled,
)

pytestmark = pytest.mark.e2e

WAIT_S = 50  # of a request for records that do not come


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """Three brokers that look after retention five times a second."""
    often = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "200"}
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name,
        Cluster(Path(name), environment=often) as cluster,
    ):
        yield cluster


def test_large_bodies_that_are_no_plain_requests_come_whole(brokers: Cluster) -> None:
    """Another parser reads them: the connection closes after each."""
    # requirement: T8
    create_topic(brokers.urls[0], "closing", 1)
    url = brokers.url(brokers.leader("closing", 0))
    headers = {"Content-Type": media_types.OCTET_STREAM}
    for _ in range(10):
        request = urllib.request.Request(url + records_path("closing"), os.urandom(1_000_000), headers)
        eventually(partial(is_stored, request), what="a body that is stored")


def is_stored(request: urllib.request.Request) -> bool:
    """Whether a broker stores the body; false if it refuses that for a time. No other error is repeated."""
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return int(answer.status) == 200
    except urllib.error.HTTPError as refusal:
        if refusal.code not in RETRYABLE:
            raise AssertionError("a body is refused for good") from refusal
        return False
    except OSError as error:
        raise AssertionError("a body does not come whole") from error


def test_a_client_that_hangs_up_while_it_waits_frees_its_place(brokers: Cluster) -> None:
    """At a broker that does not lead the partition."""
    # requirement: C3
    topic = "waiting"
    create_topic(brokers.urls[0], topic, 1)
    leader = brokers.leader(topic, 0)
    broker = next(other for other in brokers.brokers if other != leader)
    with connect(brokers.url(broker)) as connection:
        path = f"{records_path(topic)}?offset=0&wait={WAIT_S}s"
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        connection.sendall(request)

        def is_parked() -> bool:
            if select([connection], [], [], 0)[0]:  # a refusal, as during an election
                assert connection.recv(1 << 16)
                connection.sendall(request)
            return brokers.metric("raftlog_http_parked_requests", broker=broker) == 1

        eventually(is_parked, what="it is parked")
    eventually(
        lambda: brokers.metric("raftlog_http_parked_requests", broker=broker) == 0,
        what="it is parked no more",
    )


def test_what_retention_removed_is_gone_and_the_range_is_named(brokers: Cluster) -> None:
    # requirement: RT3, RT4
    url = brokers.urls[0]
    create_topic(url, "short", 1, segment_bytes=20_000, retention_bytes=40_000)
    for number in range(40):
        produce_surely(brokers.urls, "short", [f"{number}-{'x' * 5000}"])

    def is_within_bounds(broker: int) -> bool:
        segments = list(brokers.data_directory(broker).glob("short-*/Partition-0/*.log"))
        return sum(len(content_of(path.read_bytes())) for path in segments) <= 40_000

    for broker in brokers.brokers:
        eventually(lambda broker=broker: is_within_bounds(broker), what="old segments go")
    for asked in brokers.urls:
        below = settled(asked, "GET", records_path("short") + "?offset=0")
        assert (below.status, below.code) == (410, "offset_out_of_range"), below
        first, end = below.number("start"), below.number("end")
        assert 32 <= first < end >= 40, "each log start takes an offset, too"
        found = read_all(asked, "short", start=first)
        numbers = [int(str(value).split("-")[0]) for _, value in found]
        assert numbers == [*range(numbers[0], 40)]
        assert 30 <= numbers[0] <= first <= found[0][0]


def test_whoever_waits_at_a_topic_that_is_deleted_is_told_at_once(brokers: Cluster) -> None:
    create_topic(brokers.urls[0], "doomed", 1)
    answers: list[tuple[Answer, float]] = []

    def wait_at(url: str) -> None:
        begun = time.monotonic()
        answer = settled(url, "GET", records_path("doomed") + f"?offset=0&wait={WAIT_S}s")
        answers.append((answer, time.monotonic() - begun))

    waiting = [threading.Thread(target=wait_at, args=(url,)) for url in brokers.urls]
    for thread in waiting:
        thread.start()
    for broker in brokers.brokers:
        eventually(
            lambda broker=broker: brokers.metric("raftlog_http_parked_requests", broker=broker) == 1,
            what="all three wait",
        )
    delete_topic(brokers.urls[0], "doomed")
    for thread in waiting:
        thread.join(LIMIT_S)
    assert [(answer.status, answer.code) for answer, _ in answers] == [(404, "topic_not_found")] * 3
    assert max(took_s for _, took_s in answers) < WAIT_S, "they waited to the end"


def test_a_topic_created_again_never_shows_what_it_held_before(brokers: Cluster) -> None:
    for life in range(5):
        url = brokers.urls[life % 3]
        create_topic(url, "phoenix", 1)
        for asked in brokers.urls:
            assert read_all(asked, "phoenix") == []
        produce_surely([url], "phoenix", [f"life {life}"])
        for asked in brokers.urls:
            assert read_all(asked, "phoenix") == [(0, f"life {life}")]
        delete_topic(url, "phoenix")
    for broker in brokers.brokers:
        eventually(
            lambda broker=broker: not list(brokers.data_directory(broker).glob("phoenix-*")),
            what="no bytes of deleted topics stay",
        )
