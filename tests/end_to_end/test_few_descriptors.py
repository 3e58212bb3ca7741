"""Brokers that may open few files: they hold many replicas, and clients cannot take the files of the logs."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import (
    call,
    create_topic,
    eventually,
    has_leaders,
    produce,
    produce_surely,
    read_all,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit limits the open files of a process"),
]

OPEN_FILES_MAX = 256


@pytest.fixture
def narrow(directory: Path) -> Iterator[Cluster]:
    """One broker that may have 256 open files, softly and firmly."""
    # all clients have one address
    share = {"RAFTLOG_BROKER__LIMITS__CONNECTIONS_CLIENT_MAX": str(OPEN_FILES_MAX)}
    with Cluster(directory, brokers=1, open_files_max=OPEN_FILES_MAX, environment=share) as brokers:
        yield brokers


def test_more_partitions_than_descriptors(narrow: Cluster) -> None:
    url = narrow.urls[0]
    create_topic(url, "wide", 400, replication_factor=1)
    for partition in range(0, 400, 7):
        assert produce_surely([url], "wide", ["one"], partition=partition) == 0
    records = [{"key": f"key-{number}", "value": "burst"} for number in range(2000)]
    path = "/v1/topics/wide/records?timeout=1m"
    burst = call(url, "POST", path, {"records": records}, timeout_s=2 * LIMIT_S)  # nearly all logs at once
    assert burst.status == 200, burst
    open_files = list(Path(f"/proc/{narrow.pid(1)}/fd").iterdir())
    assert len(open_files) < OPEN_FILES_MAX // 2
    assert "256 open files are allowed" in narrow.log_text(1)

    narrow.kill(1)
    narrow.start(1)
    eventually(lambda: has_leaders(url, "wide", 400), what="leaders after a restart")
    assert read_all(url, "wide", 0)[0] == (0, "one")
    produce_surely([url], "wide", ["two"], partition=399)
    values = [value for _, value in read_all(url, "wide", 399)]
    assert (values[0], values[-1]) == ("one", "two")
    assert narrow.broken() == []


def answered(connection: socket.socket) -> int:
    """The status of the next response, which is read whole: it may come in pieces."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_idle_connections_leave_files_to_the_logs(narrow: Cluster) -> None:
    url = narrow.urls[0]
    create_topic(url, "orders", 4, replication_factor=1, segment_bytes=4096)
    where = urlsplit(url)
    refusals = []
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(socket.create_connection((where.hostname, where.port)))
        client.sendall(b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answered(client) == 200
        for _ in range(OPEN_FILES_MAX + 50):
            stack.enter_context(socket.create_connection((where.hostname, where.port)))

        def refused() -> bool:
            answer = call(url, "GET", "/v1/topics")
            refusals.append(answer)
            return answer.status == 503

        eventually(refused, what="a refusal")
        assert refusals[-1].code == "overloaded"
        assert "limits.connections_max" in str(refusals[-1].json["detail"])
        assert "retry-after" in refusals[-1].headers

        for number in range(40):
            body = b'{"records":[{"value":"%s"}]}' % (b"x" * 1000)
            client.sendall(
                b"POST /v1/topics/orders/partitions/%d/records HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (number % 4, len(body), body)
            )
            assert answered(client) == 200
    eventually(lambda: produce(url, "orders", ["after"]).status == 200, what="room again")
    assert len(read_all(url, "orders", 0)) == 11
    assert narrow.metric("raftlog_http_connections_refused_total", broker=1) > 0
    assert narrow.broken() == []
