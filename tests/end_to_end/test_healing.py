"""A broker that dies for good: its replicas are restored on others, and nothing is lost meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.workload import Workload
from raftlog import Client
from raftlog.client.blocking import Partitions
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S
from raftlog.wire.bodies import PartitionDescription
from tests.helpers.command_line import health
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import create_topic, eventually

DEAD_S = 20.0  # a broker that is late on a busy machine is not dead for good
LATE_S = 5.0  # a broker may be silent for so long before it is killed
TIMING = {"RAFTLOG_BROKER__TIMING__RESTORE_AFTER_MS": f"{DEAD_S * 1000:.0f}"}
FILLED = 6  # partitions on broker 5, so that it is no choice while another broker will do


@pytest.fixture
def five(directory: Path) -> Iterator[Cluster]:
    """Five brokers of the test's own that are dead after a few seconds."""
    with Cluster(directory, brokers=5, environment=TIMING) as brokers:
        yield brokers


def placed(replicas: Partitions, topic: str, partition: int, *brokers: int) -> None:
    """Return once exactly these brokers hold the partition."""

    def attempt() -> bool:
        try:
            shown = replicas.set_replicas(topic, partition, brokers, wait=f"{LIMIT_S:g}s")
        except RaftlogError:
            return False
        return shown.reassignment is None and set(shown.replicas) == set(brokers)

    eventually(attempt, what=f"replicas of {topic}/{partition} on {brokers}")


def is_led_by(replicas: Partitions, topic: str, broker: int) -> bool:
    """Whether this broker leads partition 0, to which the leadership is transferred."""
    try:
        return replicas.transfer_leadership(topic, 0, to=broker).leader == broker
    except RaftlogError:
        return False


def shown(client: Client, topic: str) -> list[PartitionDescription]:
    """The partitions of a topic; nothing while no broker answers."""
    try:
        return client.topics.partitions(topic)
    except RaftlogError:
        return []


def rows(client: Client, topic: str) -> list[set[int]]:
    """The brokers of each partition whose move has ended and whose replicas are all in sync."""
    return [
        {*one.replicas} if one.reassignment is None and {*one.in_sync} == {*one.replicas} else set()
        for one in shown(client, topic)
    ]


def _only_broker_3_is_down(found: dict[str, object]) -> bool:
    return (found.get("problems"), found.get("not_restorable")) == (["broker 3 is down"], [])


# requirement: F1
@pytest.mark.e2e
def test_the_replicas_of_a_broker_that_dies_for_good_are_restored_under_load(five: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(five.urls[0], "A", 2)
    create_topic(five.urls[0], "B")
    create_topic(five.urls[0], "filler", FILLED, replication_factor=1)
    with Client(five.bootstrap) as client:
        for partition in range(FILLED):
            placed(client.partitions, "filler", partition, 5)
        placed(client.partitions, "A", 0, 1, 2, 3)
        placed(client.partitions, "A", 1, 2, 3, 4)
        placed(client.partitions, "B", 0, 3, 4, 1)
        eventually(lambda: is_led_by(client.partitions, "B", 3), what="broker 3 leads B")
        with (
            Workload(five.urls, "A", partitions=2, seed=SEED) as load,
            Workload(five.urls, "B", partitions=1, seed=SEED) as other,
        ):
            load.wait_for_acknowledged(100)
            other.wait_for_acknowledged(50)
            began = time.monotonic()
            five.kill(3)
            eventually(
                lambda: any(row and 3 not in row for row in [*rows(client, "A"), *rows(client, "B")]),
                what="a replica that was restored",
            )
            assert time.monotonic() - began >= DEAD_S - LATE_S
            eventually(
                lambda: [*rows(client, "A"), *rows(client, "B")] == [{1, 2, 4}, {2, 4, 1}, {4, 1, 2}],
                what="the replicas of requirement F1",
            )
            print(f"restored {time.monotonic() - began:.1f} s after the kill")
            eventually(
                lambda: any(one.leader in (4, 1, 2) for one in shown(client, "B")), what="another leader of B"
            )
            load.wait_for_acknowledged(100)
            other.wait_for_acknowledged(50)
        judge(load)
        judge(other)
        eventually(
            lambda: _only_broker_3_is_down(health(five)[1]), what="no problem but a broker that is down"
        )
        five.start(3)
        eventually(lambda: health(five)[1].get("healthy"), what="a healthy cluster")
        eventually(
            lambda: not any(five.data_directory(3).glob("[AB]-*/Partition-*")),
            what="no files of the former replicas on broker 3",
        )
        eventually(
            lambda: [*rows(client, "A"), *rows(client, "B")] == [{1, 2, 4}, {2, 4, 1}, {4, 1, 2}],
            what="the replicas of requirement F1, still",
        )
    five.wait_ready(1)
