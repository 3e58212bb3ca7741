"""A full disk: produce is refused, reads go on, nothing acknowledged is lost, and room is all it needs.

The data directories lie on small file systems in memory, which only root may mount; without that
right these tests are skipped and say so.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from broker.cluster_files import create_cluster
from chaos.cluster import Cluster
from chaos.ports import free_ports
from tests.helpers.command_line import health
from tests.helpers.real_cluster import (
    Answer,
    call,
    create_topic,
    eventually,
    partitions_of,
    produce,
    produce_surely,
    read_all,
    records_path,
)

pytestmark = pytest.mark.e2e

DISK_BYTES = 6 << 20
VALUE = "x" * 50_000


@contextmanager
def small_disk(where: Path) -> Iterator[Path]:
    """A file system of ``DISK_BYTES``."""
    where.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(where)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@contextmanager
def cluster_on_small_disks(directory: Path, small: list[int], *, reserve_bytes: int) -> Iterator[Cluster]:
    """Three brokers, some of them with little room."""
    create_cluster(directory, brokers=3, http_port=free_ports(3))
    with ExitStack() as stack:
        for broker in small:
            stack.enter_context(small_disk(directory / f"broker-{broker}" / "data"))
        reserve = {"RAFTLOG_BROKER__LIMITS__DISK_RESERVE_BYTES": str(reserve_bytes)}
        yield stack.enter_context(Cluster(directory, environment=reserve))


def fill(cluster: Cluster, broker: int, *, leave_bytes: int = 0) -> Path:
    """Take the room that is left on a small disk, all but so much; returns what to remove again."""
    filler = cluster.data_directory(broker) / "filler"
    disk = os.statvfs(filler.parent)
    try:
        filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - leave_bytes)))
    except OSError:
        assert leave_bytes == 0
    return filler


def test_produce_is_refused_and_reads_go_on_until_there_is_room(directory: Path) -> None:
    with cluster_on_small_disks(directory, [1, 2, 3], reserve_bytes=2 << 20) as cluster:
        url = cluster.urls[0]
        create_topic(url, "orders", 1)
        assert produce_surely(cluster.urls, "orders", ["before"]) == 0
        fillers = [fill(cluster, broker, leave_bytes=1 << 20) for broker in cluster.brokers]

        def refused() -> Answer | None:
            answer = produce(url, "orders", ["refused"])
            return answer if answer.status == 507 else None

        refusal = eventually(refused, what="a refusal")
        assert (refusal.status, refusal.code, refusal.json["retryable"]) == (507, "storage_full", True)
        assert "retry-after" in refusal.headers
        eventually(partial(health_names_full_disks, cluster), what="health names the full disks")
        stored = [value for _, value in read_all(url, "orders")]
        assert stored[0] == "before"
        for filler in fillers:
            filler.unlink()
        produce_surely(cluster.urls, "orders", ["after"])
        eventually(lambda: not health_names_full_disks(cluster), what="health names no full disk")
        values = [value for _, value in read_all(url, "orders")]
        assert values[: len(stored)] == stored
        # What was refused with an unknown outcome may have been stored since.
        assert [value for value in values[len(stored) :] if value != "refused"] == ["after"]


def test_appends_that_meet_the_end_of_the_disk_lose_nothing(directory: Path) -> None:
    # requirement: N4
    with cluster_on_small_disks(directory, [1, 2, 3], reserve_bytes=0) as cluster:
        url = cluster.urls[0]
        create_topic(url, "orders", 1)
        fillers = [fill(cluster, broker, leave_bytes=1 << 20) for broker in cluster.brokers]
        acknowledged = []
        for number in range(60):
            value = f"{number}-{VALUE}"
            answer = produce(url, "orders", [value], query="?timeout=3s")
            if answer.status == 200:
                acknowledged.append(value)
            else:
                assert answer.status in (503, 504, 507), answer
                if len(acknowledged) > 5 and answer.status == 507:
                    break
        else:
            raise AssertionError(f"the disk was never full: {len(acknowledged)} values were acknowledged")
        # Of the leader that refused, which may have handed over since.
        free_bytes = [cluster.metric("raftlog_disk_free_bytes", broker=each) for each in cluster.brokers]
        is_met = any(0 < each < len(VALUE) + 4096 for each in free_bytes)
        assert is_met, f"{free_bytes}: refused since an append met the end, not by the reserve"
        print(f"{len(acknowledged)} values were acknowledged before the disk was full")
        values = [value for _, value in read_all(url, "orders")]
        assert [value for value in values if value in set(acknowledged)] == acknowledged
        for filler in fillers:
            filler.unlink()
        produce_surely(cluster.urls, "orders", ["after"])
        for _ in range(2):
            values = [value for _, value in read_all(url, "orders")]
            assert [value for value in values if value in set(acknowledged)] == acknowledged
            assert values[-1] == "after"
            for broker in cluster.brokers:
                cluster.kill(broker)
            cluster.start()


def health_names_full_disks(cluster: Cluster) -> bool:
    """Whether ``raftlog cluster health`` names the brokers that have no room."""
    code, found = health(cluster)
    told = str(found.get("problems"))
    is_named = any(
        f"broker {broker} has no room and takes no records: " in told for broker in cluster.brokers
    )
    assert code == 1 or not is_named
    return is_named


def led_by_others(cluster: Cluster) -> tuple[int, int] | None:
    """A partition that another broker than the first one leads, and that broker."""
    for item in partitions_of(cluster.url(2), "orders"):
        if item["leader"] in (2, 3):
            return int(str(item["partition"])), int(str(item["leader"]))
    return None


def test_a_follower_without_room_holds_up_nobody_and_catches_up(directory: Path) -> None:
    with cluster_on_small_disks(directory, [1], reserve_bytes=0) as cluster:
        url = cluster.url(2)
        create_topic(url, "orders", 3)
        partition, _ = eventually(partial(led_by_others, cluster), what="a leader with room")
        filler = fill(cluster, 1, leave_bytes=300_000)
        values = [f"{number}-{VALUE}" for number in range(30)]
        for value in values:
            produce_surely([cluster.url(2), cluster.url(3)], "orders", [value], partition=partition)
        eventually(
            lambda: cluster.metric("raftlog_disk_free_bytes", broker=1) < 100_000,
            what="the follower writes until its disk has no room",
        )
        assert cluster.running == [1, 2, 3]
        filler.unlink()

        def all_hold_it() -> bool:
            answer = produce(url, "orders", ["probe"], partition=partition, query="?acks=3&timeout=1s")
            return answer.status == 200

        eventually(all_hold_it, what="a follower that has room again catches up")
        assert [value for _, value in read_all(url, "orders", partition)][: len(values)] == values
        assert cluster.metric("raftlog_failed_replicas", broker=1) == 0


# requirement: N4
def test_a_leader_dies_while_another_disk_is_full_and_the_partition_is_read(directory: Path) -> None:
    with cluster_on_small_disks(directory, [1], reserve_bytes=0) as cluster:
        url = cluster.url(2)
        create_topic(url, "orders", 3)
        partition, leader = eventually(partial(led_by_others, cluster), what="a leader with room")
        (other,) = {2, 3} - {leader}
        filler = fill(cluster, 1, leave_bytes=100_000)
        values, end = [f"{number}-{VALUE}" for number in range(10)], 0
        for value in values:
            end = 1 + produce_surely([cluster.url(2), cluster.url(3)], "orders", [value], partition=partition)
        eventually(
            lambda: cluster.metric("raftlog_uncommitted_records", broker=other) == 0,
            what="the other replica learns what is committed",
        )
        cluster.kill(leader)

        def is_read() -> bool:
            answer = call(
                cluster.url(other), "GET", records_path("orders", partition) + "?offset=earliest&limit=1"
            )
            return answer.status == 200

        eventually(is_read, what="a leader, although one disk of the two that live is full")
        found = read_all(cluster.url(other), "orders", partition, end=end)
        assert [value for _, value in found] == values
        filler.unlink()
        cluster.start()
        produce_surely(cluster.urls, "orders", ["after"], partition=partition)
        assert [value for _, value in read_all(url, "orders", partition)] == [*values, "after"]
