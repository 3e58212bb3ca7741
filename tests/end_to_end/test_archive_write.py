"""``raftlog archive write`` beside three brokers: killed, twice at once, and while it follows a topic."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.client.messages import Message
from raftlog.testing.waits import LIMIT_S
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.files import read_batches
from spark_io.archive.storage import DirectoryStorage
from spark_io.planning import Range
from tests.helpers.command_line import command, run
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = pytest.mark.e2e

OFTEN = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "200"}
PARTITIONS = range(3)
SMALL = ("--batch-records", "60")
KILLS = 2


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    """Three brokers that look at retention five times a second."""
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name,
        Cluster(Path(name), environment=OFTEN) as made,
    ):
        yield made


def send(client: Client, transactions: int) -> None:
    """Transactions of records with everything a record may have; each third is aborted."""
    with client.producer("orders", transactional_id="t") as producer:
        for number in range(transactions):
            with producer.transaction() as transaction:
                for each in range(20):
                    headers = [("h", b"1"), ("h", None)] if each % 2 else None
                    value = f"{number}-{each}".ljust(500)
                    transaction.send(value, key=f"k{each}", partition=each % 3, headers=headers)
                if number % 3 == 0:
                    transaction.abort()


def log(client: Client, topic: str = "orders") -> list[Message]:
    """All committed records that a topic still has."""
    found: list[Message] = []
    for number in PARTITIONS:
        partition = client.partition(topic, number)
        end, at = partition.offset_at("latest"), -1  # a read alone may meet a leader that knows an old end
        while at < end:
            chunk = partition.read("earliest" if at < 0 else at)
            found += chunk.messages
            at = chunk.next_offset
    return found


def as_archived(one: Message) -> tuple[object, ...]:
    headers = [{"key": name, "value": value} for name, value in one.headers] or None
    return one.partition, one.offset, one.timestamp_ms, one.key, one.value, headers


def archive_of(folder: Path) -> list[tuple[object, ...]]:
    """All rows of the files that count, also rows that two files would have."""
    storage, found = DirectoryStorage(folder), list[tuple[object, ...]]()
    for one in catalogue.load(storage).files:
        whole = Range("orders", one.partition, 0, 1 << 40)
        for batch in read_batches(storage, [(one, whole)]):
            times = [int(at.timestamp() * 1_000) for at in batch.column("timestamp").to_pylist()]
            for row, at in zip(batch.to_pylist(), times, strict=True):
                found.append((row["partition"], row["offset"], at, row["key"], row["value"], row["headers"]))
    return sorted(found, key=lambda row: row[:2])


def kill_in_a_batch(brokers: Cluster, folder: Path, rng: random.Random) -> None:
    """Kill a run at any time after its first batch."""
    with command(brokers, "archive", "write", "orders", str(folder), *SMALL) as process:
        assert process.stderr is not None
        assert b"orders: " in process.stderr.readline()
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 0.1))
        process.kill()


# requirement: A8
def test_killed_runs_archive_each_record_once_and_retention_goes_on(brokers: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    settings: dict[str, int | str] = {"segment_bytes": 4_096, "retention_bytes": 4_096}
    create_topic(brokers.urls[0], "orders", 3, retention_archive_required="true", **settings)
    rng, known = random.Random(8), dict[tuple[int, int], tuple[object, ...]]()
    with Client(",".join(brokers.urls)) as client:
        for round_ in range(KILLS + 1):  # each run has records of its own to archive, however late its kill
            if round_:
                kill_in_a_batch(brokers, folder, rng)
            send(client, 15)
            known |= {(one.partition, one.offset): as_archived(one) for one in log(client)}
        expected = [known[place] for place in sorted(known)]
        assert len(expected) == 600
        assert 0 < len(archive_of(folder)) < len(expected)
        at_once = [command(brokers, "archive", "write", "orders", str(folder), *SMALL) for _ in range(2)]
        told = [one.communicate(timeout=2 * LIMIT_S)[1].decode() for one in at_once]
        codes = sorted(one.returncode for one in at_once)
        assert codes in ([0, 0], [0, 1]), told
        assert sum("another process archives topic orders" in one for one in told) == codes[1], told
        assert archive_of(folder) == expected
        run(brokers, "archive", "verify", str(folder))
        eventually(
            lambda: min(one.log_start_offset for one in client.topics.partitions("orders")) > 0,
            what="retention that goes on",
        )
        create_topic(brokers.urls[0], "again", 3, message_timestamp_type="CreateTime")
        run(brokers, "archive", "replay", str(folder), "orders", "--into", "again", "--job", "j")
        replayed = [(one.partition, one.timestamp_ms, one.key, one.value) for one in log(client, "again")]
        assert replayed == [(row[0], *row[2:5]) for row in expected]


# requirement: A8
def test_it_follows_a_topic_until_it_is_ended(unbroken: Cluster, tmp_path: Path) -> None:
    create_topic(unbroken.urls[0], "orders", 3)
    arguments = ("archive", "write", "orders", str(tmp_path), "--follow", "--interval", "100ms", "-o", "json")
    with Client(",".join(unbroken.urls)) as client, command(unbroken, *arguments) as process:
        for round_ in (1, 2):
            send(client, 2)
            committed = 20 * round_
            eventually(lambda n=committed: len(archive_of(tmp_path)) == n, what="records in the archive")
        expected = [as_archived(one) for one in log(client)]
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=2 * LIMIT_S)
    assert process.returncode == 128 + signal.SIGTERM, told
    assert archive_of(tmp_path) == expected
    shown = [(row["partition"], row["from"], row["records"]) for row in json.loads(out)]
    assert shown == [(number, 0, sum(one[0] == number for one in expected)) for number in PARTITIONS]
    ends = {one["partition"]: one["to"] for one in json.loads(out)}
    found = catalogue.load(DirectoryStorage(tmp_path))
    assert ends == {number: found.of(TopicPartition("orders", number))[-1].end for number in PARTITIONS}
