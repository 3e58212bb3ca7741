"""Reads from the beginning, while records go from the log to the archive, and while brokers are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.client.messages import Message
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import command, run
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = pytest.mark.e2e

PARTITIONS = range(3)
RECORDS = 1_200
Contents = tuple[object, ...]


def send(client: Client) -> None:
    with client.producer("orders", transactional_id="t") as producer:
        for number in range(RECORDS // 20):
            with producer.transaction() as transaction:
                for each in range(20):
                    headers = [("h", b"1"), ("h", None)] if each % 2 else None
                    transaction.send(f"{number}-{each}".ljust(500), partition=each % 3, headers=headers)


def contents(one: Message) -> Contents:
    return one.partition, one.offset, one.timestamp_ms, one.timestamp_type, one.key, one.value, one.headers


def read(client: Client, rng: random.Random | None = None) -> list[Contents]:
    """All records from offset 0 on, in pieces of any size."""
    found: list[Contents] = []
    for number in PARTITIONS:
        partition, at = client.partition("orders", number), 0
        end = partition.offset_at()
        while at < end:
            size = 1 << 20 if rng is None else rng.randrange(1, 20_000)
            chunk = partition.read(at, max_bytes=size)
            found += map(contents, chunk.messages)
            assert chunk.next_offset > at or not chunk.messages
            at = chunk.next_offset
    return found


def read_whole(client: Client) -> list[Contents] | None:
    """All records; None if there is not the number that was sent."""
    found = read(client)
    return found if len(found) == RECORDS else None


def starts(client: Client) -> list[int]:
    return [one.log_start_offset for one in client.topics.partitions("orders")]


def by_events(url: str, last: int) -> list[int]:
    """The offsets of the events of partition 0 up to ``last``."""
    path = f"{url}/v1/topics/orders/partitions/0/records?offset=earliest"
    request = urllib.request.Request(path, headers={"Accept": "text/event-stream"})
    found: list[int] = []

    def follow() -> bool:
        """Go on where the stream before ended, as it does when the leader is lost."""
        if found:
            request.add_header("Last-Event-ID", str(found[-1]))
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            while (not found or found[-1] < last) and (line := answer.readline()):
                found.extend([int(line[4:])] if line.startswith(b"id: ") else [])
        return bool(found) and found[-1] >= last

    eventually(follow, what="all events", progress=lambda: len(found))
    return found


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process does not outlive the block, also if that fails."""
    try:
        yield
    finally:
        process.kill()


# requirement: A8
def test_a_read_from_the_beginning_has_every_record_whatever_is_deleted_meanwhile(tmp_path: Path) -> None:
    folder, rng = tmp_path / "archive", random.Random(5)
    environment = {
        "RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "100",
        "RAFTLOG_BROKER__ARCHIVE__LOCATION": str(folder),
        "RAFTLOG_BROKER__ARCHIVE__DEADLINE_MS": str(round(1000 * LIMIT_S)),
    }
    patient = f"{2 * LIMIT_S:g}s"
    settings: dict[str, int | str] = {"segment_bytes": 4_096, "retention_bytes": 4_096}
    with (
        Cluster(tmp_path / "brokers", environment=environment) as brokers,
        Client(",".join(brokers.urls), request_timeout=patient, retry_timeout=patient) as client,
    ):
        create_topic(brokers.urls[0], "orders", 3, retention_archive_required="true", **settings)
        send(client)
        expected = eventually(partial(read_whole, client), what="all records")
        follow = ("--follow", "--interval", "100ms", "--batch-records", "90")
        with (
            command(brokers, "archive", "write", "orders", str(folder), *follow) as archiving,
            ended(archiving),
        ):
            for broker in (1, 2):
                killing = threading.Timer(rng.uniform(0, 0.5), brokers.kill, [broker])
                killing.start()
                assert read(client, rng) == expected
                killing.join()
                assert read(client, rng) == expected
                brokers.start(broker)
            eventually(lambda: min(starts(client)) > 0, what="deletion in all partitions")
            assert read(client, rng) == expected
            archiving.send_signal(signal.SIGTERM)
            archiving.communicate(timeout=2 * LIMIT_S)
        assert read(client) == expected
        printed, _ = run(brokers, "consume", "orders", "--from", "0", "-p", "1", "--format", "%o ")
        assert [int(one) for one in printed.split()] == [one[1] for one in expected if one[0] == 1]
        of_0 = [int(str(one[1])) for one in expected if one[0] == 0]
        assert by_events(brokers.urls[2], of_0[-1]) == of_0
        with client.consumer("g", ["orders"], session_timeout="2m") as consumer:
            consumed = [consumer.poll(f"{LIMIT_S:.0f}s") for _ in expected]
        assert sorted(contents(one) for one in consumed if one is not None) == expected
