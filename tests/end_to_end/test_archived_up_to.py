"""Retention of real brokers waits for the archive: over HTTP, in Python, on the command line, under kills."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.errors import Conflict
from raftlog.wire.bodies import PartitionDescription
from spark_io.archive import catalogue
from spark_io.archive.files import FileWriter
from spark_io.archive.storage import DirectoryStorage
from tests.helpers.archives import rows
from tests.helpers.command_line import health, run
from tests.helpers.real_cluster import call, create_topic, eventually

pytestmark = pytest.mark.e2e

OFTEN = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "200"}


@pytest.fixture
def looking() -> Iterator[Cluster]:
    """Three brokers that look at retention five times a second."""
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name,
        Cluster(Path(name), environment=OFTEN) as made,
    ):
        yield made


def described(client: Client) -> PartitionDescription:
    return client.topics.partitions("orders")[0]


def value_of(url: str, metric: str) -> float:
    lines = call(url, "GET", "/metrics").body.decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{metric} ", f"{metric}{{"))
    )


def is_shown(cluster: Cluster, metric: str) -> bool:
    """Whether the leader shows it. A new one does after its first look at retention."""
    return value_of(cluster.url(cluster.leader("orders", 0)), metric) > 0


def is_reported(cluster: Cluster) -> bool:
    """Whether the health of the cluster names the partition and says what it waits for."""
    code, found = health(cluster)
    if code != 1:
        return False
    wanted = "archived up to offset 0; run its archive job"
    return found["awaiting_archive"] == ["orders/0"] and wanted in str(found["problems"])


# requirement: A8
def test_retention_waits_for_the_archive_also_under_kills(looking: Cluster, tmp_path: Path) -> None:
    settings: dict[str, int | str] = {"segment_bytes": 1_024, "retention_bytes": 1_024}
    create_topic(looking.urls[0], "orders", **settings)
    with Client(",".join(looking.urls)) as client:
        client.topics.alter("orders", config={"retention.archive.required": "true"})
        for number in range(20):
            client.send("orders", f"{number:0500}")
        eventually(lambda: described(client).awaiting_archive_bytes > 0, what="retention that waits")
        assert described(client).log_start_offset == 0
        eventually(lambda: is_reported(looking), what="a problem of the cluster")
        for metric in ("raftlog_awaiting_archive_bytes", "raftlog_partition_awaiting_archive_bytes"):
            eventually(partial(is_shown, looking, metric), what=f"{metric} of the leader")
        with pytest.raises(Conflict, match="archived up to 0"):
            client.partitions.delete_before("orders", 0, 5)

        archive = DirectoryStorage(tmp_path)
        writer = FileWriter(archive)
        writer.add(rows(range(10)))
        assert catalogue.commit(archive, "q", 1, writer.close(), lambda _: False)
        shown, _ = run(looking, "archive", "report", str(tmp_path), "--dry-run", "-o", "json")
        assert json.loads(shown)[0]["archived_up_to"] == 0
        shown, _ = run(looking, "archive", "report", str(tmp_path), "-o", "json")
        assert json.loads(shown) == [
            {"topic": "orders", "partition": 0, "log_start": 0, "archived_up_to": 10, "archive_end": 10}
        ]
        looking.kill(looking.leader("orders", 0))
        eventually(lambda: 0 < described(client).log_start_offset <= 10, what="retention")
        looking.start()
        for broker in looking.brokers:
            looking.kill(broker)
        looking.start()

        def waits_again() -> bool:
            found = described(client)
            return found.awaiting_archive_bytes > 0 and found.archived_up_to == 10

        eventually(waits_again, what="retention that waits again, from where it was")
        assert 0 < described(client).log_start_offset <= 10
        (message,) = eventually(
            lambda: client.partition("orders", 0).read(10, limit=1).messages,
            what="the first record that is not archived",
        )
        assert message.offset == 10

        arguments = ("partition", "set-archived", "orders", "0", "--offset")
        assert run(looking, *arguments, "5")[0].split()[-1] == b"10"
        assert run(looking, *arguments, "9", "--allow-lower")[0].split()[-1] == b"9"
        assert client.partitions.set_archived("orders", 0, 20).archived_up_to == 20
        eventually(lambda: described(client).awaiting_archive_bytes == 0, what="retention that goes on")


# requirement: A8
def test_left_over_files_are_removed(unbroken: Cluster, tmp_path: Path) -> None:
    archive = DirectoryStorage(tmp_path)
    counted, left = FileWriter(archive), FileWriter(archive)
    counted.add(rows(range(10)))
    left.add(rows(range(5)))
    [unlisted] = left.close()
    assert catalogue.commit(archive, "q", 1, counted.close(), lambda _: False)
    arguments = ("archive", "verify", str(tmp_path))
    _, told = run(unbroken, *arguments)
    assert "1 file in no manifest" in told
    _, told = run(unbroken, *arguments, "--remove-unlisted")
    assert "0 files removed" in told, "it is too young"
    assert archive.exists(unlisted.path)
    _, told = run(unbroken, *arguments, "--remove-unlisted", "--older-than", "0s")
    assert "1 file removed" in told
    assert not archive.exists(unlisted.path)
    _, told = run(unbroken, *arguments)
    assert "no manifest" not in told
