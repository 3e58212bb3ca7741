"""A partition whose replica breaks an invariant at every start ends its broker once, and not again."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.state_files import StateFiles
from raftlog.testing.waits import LIMIT_S
from raftlog.types import EntryId
from tests.helpers.real_cluster import create_topic, eventually, partitions_of, produce_surely, values_of

UNKNOWN_VERSION = bytes([99])
EXIT_BROKEN = 70


def break_state(replica: Path) -> None:
    """Leave a checkpoint whose checksum is right and whose table of producers no release has written."""
    files = StateFiles(OsFilesystem(), str(replica))
    places: list[EntryId] = []
    assert files.newest(lambda entry: places.append(entry) is None), "a clean stop leaves a checkpoint"
    files.save_checkpoint(max(places, key=lambda entry: entry.index), UNKNOWN_VERSION)


def stopped_and_broken(cluster: Cluster) -> Path:
    """Broker 3 stops, and its replica of partition 0 will break an invariant when it is opened."""

    def is_applied() -> bool:
        logs = cluster.data_directory(3).glob("orders-*/Partition-0/*.log")
        has_entries = any(path.stat().st_size for path in logs)
        return has_entries and cluster.metric("raftlog_uncommitted_records", broker=3) == 0

    eventually(is_applied, what="broker 3 holds what is committed, and knows it")
    (replica,) = cluster.data_directory(3).glob("orders-*/Partition-0")
    assert cluster.stop(3) == 0
    break_state(replica)
    return replica


def failed_replicas(cluster: Cluster) -> float:
    """Those of broker 3."""
    return cluster.metric("raftlog_failed_replicas", broker=3)


def in_sync(cluster: Cluster, partition: int) -> object:
    return partitions_of(cluster.url(1), "orders")[partition]["in_sync"]


# A group that breaks an invariant ends its broker once; the next start stops and reports the group.
@pytest.mark.e2e
def test_a_group_that_breaks_at_every_start_does_not_take_the_others_along(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 2)
    for partition in (0, 1):
        produce_surely(cluster.urls, "orders", ["before"], partition=partition)
    replica = stopped_and_broken(cluster)

    cluster.launch(3)
    status, text = cluster.ended(3)
    assert status == EXIT_BROKEN, text
    assert "the snapshot of a partition has the unknown version 99" in text

    cluster.start(3)
    eventually(
        lambda: "the snapshot of a partition has the unknown version 99" in cluster.log_text(3),
        what="a start that says which group it does not open",
    )
    eventually(lambda: in_sync(cluster, 1) == [1, 2, 3], what="partition 1 on all brokers")
    eventually(lambda: failed_replicas(cluster) == 1, what="one replica that is not open")
    for partition in (0, 1):
        produce_surely(cluster.urls, "orders", ["meanwhile"], partition=partition)
    cluster.stop(2)  # broker 3 is one of two that hold partition 1 now
    produce_surely([cluster.url(1), cluster.url(3)], "orders", ["with it"], partition=1)
    cluster.start(2)

    # The way out: the replica moves away, and one that begins with nothing comes in its place.
    with Client(cluster.bootstrap, retry_timeout=f"{LIMIT_S:g}s") as client:
        client.partitions.set_replicas("orders", 0, (1, 2), wait=f"{LIMIT_S:g}s")
        eventually(lambda: not replica.exists(), what="the broken replica is deleted")
        client.partitions.set_replicas("orders", 0, (1, 2, 3), wait=f"{LIMIT_S:g}s")
    eventually(lambda: in_sync(cluster, 0) == [1, 2, 3], what="partition 0 on all brokers")
    eventually(lambda: failed_replicas(cluster) == 0, what="no replica that is not open")
    assert cluster.stop(3) == 0
    cluster.start(3)
    eventually(lambda: in_sync(cluster, 0) == [1, 2, 3], what="partition 0 after a restart")
    assert values_of(cluster, "orders", 0) == ["before", "meanwhile"]
    assert values_of(cluster, "orders", 1) == ["before", "meanwhile", "with it"]


@pytest.mark.e2e
def test_a_group_that_the_operator_clears_is_opened_again(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 1)
    produce_surely(cluster.urls, "orders", ["before"])
    replica = stopped_and_broken(cluster)
    cluster.launch(3)
    assert cluster.ended(3)[0] == EXIT_BROKEN
    cluster.start(3)
    assert cluster.stop(3) == 0
    notes = list((cluster.data_directory(3) / "broken").iterdir())
    assert len(notes) == 2
    for note in notes:
        note.unlink()
    cluster.launch(3)
    assert cluster.ended(3)[0] == EXIT_BROKEN, "its state is as it was"
    (replica / "snapshot").unlink()  # it is read from the log instead
    for note in (cluster.data_directory(3) / "broken").iterdir():
        note.unlink()
    cluster.start(3)
    eventually(lambda: in_sync(cluster, 0) == [1, 2, 3], what="the replica serves again")


@pytest.mark.e2e
def test_a_broken_metadata_group_ends_its_broker_at_every_start(cluster: Cluster) -> None:
    assert cluster.stop(3) == 0
    (replica,) = cluster.data_directory(3).glob("__cluster_metadata/Partition-0")
    break_state(replica)
    for _ in range(2):
        cluster.launch(3)
        status, text = cluster.ended(3)
        assert status == EXIT_BROKEN, text
    assert cluster.running == [1, 2]
