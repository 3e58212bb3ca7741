"""A broker comes to a cluster in use and takes a replica over, and gives it back before it is stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.workload import Workload
from raftlog import Client
from raftlog.wire.bodies import PartitionDescription
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import create_topic, eventually, read_all

PARTITION = 2
ENVIRONMENT = {"RAFTLOG_BROKER__LIMITS__CATCH_UP_BYTES_PER_S": str(1 << 20)}
PRELOADED = 24  # records of 512 KiB that compress badly: a copy takes twelve seconds, in which it is seen


@pytest.fixture
def growing(directory: Path) -> Iterator[Cluster]:
    """Three brokers that run, and a fourth that is known to the cluster, holds nothing, and is stopped.

    The first start of a cluster needs all its brokers: they are the members of the metadata group.
    """
    with Cluster(directory, brokers=4, environment=ENVIRONMENT) as brokers:
        assert brokers.stop(4) == 0
        yield brokers


def alive(client: Client) -> list[int]:
    """The brokers that take replicas."""
    return [broker.broker_id for broker in client.brokers.list() if broker.alive]


class Move:
    """One move of the partition while records are produced, as an administrator and a producer see it."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self._cluster = cluster
        self._client = client
        self.sent: list[str] = []
        self.seen: list[tuple[set[int], set[int]]] = []  # voters and learners, when they changed

    def to(self, *target: int, joins: int, leaves: int) -> None:
        """Order the move and watch it to its end. Every record must be acknowledged, by whichever leader."""
        self.seen = []
        self._client.partitions.set_replicas("orders", PARTITION, target)
        eventually(lambda: self._has_arrived({*target}, joins, leaves), what=f"replicas on {target}")

    def holds(self, broker: int) -> bool:
        """Whether a broker has files of the partition."""
        return any(self._cluster.data_directory(broker).glob(f"orders-*/Partition-{PARTITION}"))

    def _has_arrived(self, target: set[int], joins: int, leaves: int) -> bool:
        self.sent.append(f"record {len(self.sent)}")
        self._client.send("orders", self.sent[-1], partition=PARTITION)
        is_gone = not self.holds(leaves)  # first: what is shown next is later
        shown = self._shown()
        replicas = {*shown.replicas}, {*shown.learners}
        if replicas not in self.seen[-1:]:
            self.seen.append(replicas)
        if is_gone:
            assert joins in shown.in_sync, (
                f"the copy on broker {leaves} is removed before {joins} has caught up"
            )
            assert leaves not in shown.replicas
        has_ended = shown.reassignment is None and {*shown.replicas} == {*shown.in_sync} == target
        return has_ended and is_gone

    def _shown(self) -> PartitionDescription:
        return self._client.topics.partitions("orders")[PARTITION]


# requirement: F2, F3
@pytest.mark.e2e
def test_a_broker_joins_takes_a_replica_over_and_gives_it_back_under_load(growing: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    running, noise = growing.urls[:3], random.Random(SEED)
    with Client(",".join(running)) as client:
        eventually(lambda: alive(client) == [1, 2, 3], what="three brokers")
        create_topic(running[0], "orders", 3)
        for _ in range(PRELOADED):
            client.send("orders", noise.randbytes(256 << 10).hex(), partition=PARTITION)
        move = Move(growing, client)
        with Workload(running, "orders", partitions=2, seed=SEED) as load:
            load.wait_for_acknowledged(50)
            growing.start(4)
            eventually(lambda: alive(client) == [1, 2, 3, 4], what="four brokers")
            assert not move.holds(4), "replicas do not move by themselves"
            move.to(2, 3, 4, joins=4, leaves=1)
            print(f"grown: {move.seen}")
            assert move.seen[-1] == ({2, 3, 4}, set())
            assert ({1, 2, 3}, {4}) in move.seen, "the set is larger for a time"
            load.wait_for_acknowledged(50)
            move.to(1, 2, 3, joins=1, leaves=4)
            print(f"shrunk: {move.seen}")
            assert ({2, 3, 4}, {1}) in move.seen
            assert not any(growing.data_directory(4).glob("orders-*/Partition-*")), (
                "it holds nothing any more"
            )
            assert growing.stop(4) == 0
            load.wait_for_acknowledged(50)
            move.sent.append("last")
            client.send("orders", "last", partition=PARTITION)
        judge(load)
        values = [value for _, value in read_all(running[0], "orders", PARTITION)]
        assert values[PRELOADED:] == move.sent
