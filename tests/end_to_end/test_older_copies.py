"""A broker starts on an older copy of its data directory, or of a folder of it, such as a backup."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog.storage import twin_file
from raftlog.storage.disk_age import AGE_FILE, DiskRecord
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.waits import LIMIT_S
from raftlog.types import NodeId
from tests.helpers.damage import logs_of
from tests.helpers.real_cluster import (
    call,
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    produce_surely,
    read_all,
    surely,
)

TOPIC = "orders"
COPIED, BEHIND, OTHER = 1, 2, 3


@pytest.fixture
def brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers whose disks age fast. One that is down gets new replicas for as long as a test waits."""
    timing = {"DISK_AGE_INTERVAL_MS": 100, "BROKER_TIMEOUT_MS": round(LIMIT_S * 1000)}
    environment = {f"RAFTLOG_BROKER__TIMING__{name}": str(value) for name, value in timing.items()}
    with Cluster(directory, environment=environment) as cluster:
        yield cluster


def replaced(source: Path, target: Path, pattern: str) -> None:
    """Copy files and folders in place of those that are there."""
    for path in target.glob(pattern):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in source.glob(pattern):
        copy = shutil.copytree if path.is_dir() else shutil.copy2
        copy(path, target / path.name)


@dataclass(frozen=True)
class Copy:
    """What is copied of a data directory and restored later; how the broker sees that it is an older copy."""

    pattern: str
    seen: str
    wait_until_noted: Callable[[Cluster], None]


def aged(cluster: Cluster) -> None:
    """The other brokers know that the disk is older than now."""
    age = partial(cluster.metric, "raftlog_disk_age", broker=COPIED)
    began = age()
    eventually(lambda: age() > began + 5, what="a disk that is older than its copy")


def disks(cluster: Cluster, broker: int) -> DiskRecord:
    """What a broker has stored of its own disk and those of the others."""
    files = FakeFilesystem()  # loading writes what is older, and the broker does, too
    names = [AGE_FILE + ending for ending in twin_file.ENDINGS]
    files.load({f"/data/{name}": (cluster.data_directory(broker) / name).read_bytes() for name in names})
    found = twin_file.load(files, "/data", AGE_FILE, DiskRecord)
    assert found is not None
    return found


def stopped(cluster: Cluster) -> None:
    """A broker notes the progress of its replicas when it stops."""
    assert cluster.stop(COPIED) == 0


COPIES = {
    "the data directory": Copy("*", "__cluster_metadata/Partition-0 is an older copy (the whole disk", aged),
    "a replica": Copy(f"{TOPIC}-*", "/Partition-0 is an older copy (its log", stopped),
    "the metadata": Copy(
        "__cluster_metadata", "__cluster_metadata/Partition-0 is an older copy (its log", stopped
    ),
}


# requirement: F6
@pytest.mark.e2e
@pytest.mark.parametrize("what", COPIES)
def test_an_older_copy_elects_nobody(brokers: Cluster, tmp_path: Path, what: str) -> None:
    """The copy and a broker that was down are a majority, and neither has what the others acknowledged."""
    copy = COPIES[what]
    create_topic(brokers.urls[0], TOPIC, 1)
    values = [f"before-{number}" for number in range(10)]
    for value in values:
        produce_surely(brokers.urls, TOPIC, [value])
    brokers.kill(COPIED)
    backup = tmp_path / "backup"
    backup.mkdir()
    replaced(brokers.data_directory(COPIED), backup, copy.pattern)
    brokers.start(COPIED)
    brokers.wait_ready(COPIED)
    copied = disks(brokers, COPIED).disk.age  # of the copy, or later
    eventually(
        lambda: (
            NodeId(COPIED) in (known := disks(brokers, BEHIND).peers)
            and known[NodeId(COPIED)][0].age > copied
        ),
        what="a broker that knows of a newer disk than its copy",
    )
    brokers.kill(BEHIND)
    for number in range(10):
        value = f"after-{number}"
        produce_surely([brokers.url(COPIED), brokers.url(OTHER)], TOPIC, [value])
        values.append(value)
    create_topic(brokers.url(COPIED), "later", 1)
    copy.wait_until_noted(brokers)
    brokers.kill(OTHER)
    brokers.kill(COPIED)
    replaced(backup, brokers.data_directory(COPIED), copy.pattern)
    brokers.launch(BEHIND)
    brokers.launch(COPIED)
    eventually(lambda: copy.seen in brokers.log_text(COPIED), what="it begins again")
    brokers.launch(OTHER)
    brokers.wait_ready(*brokers.brokers)
    eventually(
        lambda: eventfds(brokers, COPIED) == eventfds(brokers, OTHER),
        what="a start in a process that leaves nothing behind",
    )
    eventually(partial(has_leaders, brokers.urls[0], TOPIC, 1), what="a leader")
    eventually(partial(has_leaders, brokers.urls[0], "later", 1), what="the later topic")
    for url in brokers.urls:
        assert [value for _, value in read_all(url, TOPIC)] == values


def eventfds(cluster: Cluster, broker: int) -> int:
    """How many a process has: for its event loop, and for each context in which the kernel syncs files."""
    found = 0
    for path in Path(f"/proc/{cluster.pid(broker)}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was listed
            found += os.readlink(path) == "anon_inode:[eventfd]"
    return found


# requirement: F6
@pytest.mark.e2e
def test_copies_that_run_beside_their_cluster_do_it_no_harm(brokers: Cluster, tmp_path: Path) -> None:
    """Somebody starts a backup elsewhere to look at it: its settings name the running cluster as peers."""
    create_topic(brokers.urls[0], TOPIC, 1)
    produce_surely(brokers.urls, TOPIC, ["before"])
    assert set(brokers.stop_all()) == {0}
    shutil.copytree(brokers.directory, tmp_path / "copy")
    brokers.start()
    produce_surely(brokers.urls, TOPIC, ["after"])
    copies = Cluster(tmp_path / "copy")
    with ExitStack() as ended:
        ended.push(copies.__exit__)
        first = free_ports(2)
        for number, broker in enumerate((COPIED, BEHIND)):
            (tmp_path / f"copy/broker-{broker}/log").unlink()
            listens = {"HTTP": first + number, "RPC": first + 100 + number}
            copies.launch(
                broker, environment={f"RAFTLOG_BROKER__{k}__PORT": str(v) for k, v in listens.items()}
            )
        for broker in (COPIED, BEHIND):
            refused = partial(
                re.search, rf"another process runs as node {broker}, at 127.0.0.1:\d+; this process"
            )
            eventually(lambda: refused(copies.log_text(broker)), what="a copy that is refused")  # noqa: B023
        brokers.wait_ready(*brokers.brokers)
        assert set(brokers.stop_all()) == {0}
        brokers.start()
        produce_surely(brokers.urls, TOPIC, ["last"])
    for url in brokers.urls:
        assert [value for _, value in read_all(url, TOPIC)] == ["before", "after", "last"]
    assert not any("newer state of this disk" in brokers.log_text(broker) for broker in brokers.brokers)


# requirement: F6
@pytest.mark.e2e
def test_a_deleted_topic_is_restored_from_the_trash(brokers: Cluster, tmp_path: Path) -> None:
    """As docs/operations.md says. The log that is put in place is older than what the brokers have noted."""
    url = brokers.urls[0]
    create_topic(url, TOPIC, 1)
    produce_surely(brokers.urls, TOPIC, ["before"])
    trash = brokers.data_directory(COPIED)
    eventually(
        lambda: [*trash.glob(f"{TOPIC}-*/Partition-0")] and len(logs_of(brokers, TOPIC)) == 1,
        what="a log with the record on the broker whose trash is used",
    )
    surely([url], "DELETE", f"/v1/topics/{TOPIC}", None, random.Random(1))
    found = eventually(lambda: [*trash.glob(f"trash/*/{TOPIC}-*/Partition-0")], what="the deleted log")
    kept = shutil.copytree(found[0], tmp_path / "kept")
    made = create_topic(url, TOPIC, 1).json
    former = brokers.leader(TOPIC, 0)
    heir = next(broker for broker in brokers.brokers if broker != former)

    def leads() -> bool:
        call(url, "POST", f"/v1/topics/{TOPIC}/partitions/0:transfer-leadership", {"to": heir})
        return partitions_of(url, TOPIC)[0]["leader"] == heir

    eventually(leads, what="a later term")
    name = f"{TOPIC}-{made['topic_id']}/Partition-0"
    logs = {broker: brokers.data_directory(broker) / name for broker in brokers.brokers}
    eventually(lambda: all(log.exists() for log in logs.values()), what="a log on each broker")
    assert set(brokers.stop_all()) == {0}
    for broker, log in logs.items():
        folder = brokers.data_directory(broker)
        shutil.rmtree(log)
        shutil.copytree(kept, log)
        for path in [*log.glob("recovery*"), *folder.glob("replica_progress*")]:
            path.unlink()
    brokers.start()
    for url in brokers.urls:
        assert [value for _, value in read_all(url, TOPIC)] == ["before"]
