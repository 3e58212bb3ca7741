"""Where replicas and leaders go, with few partitions and with many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from chaos.cluster import Cluster
from raftlog.testing.kit import RaftlogCluster
from tests.helpers.real_cluster import call, eventually, has_leaders, partitions_of, produce

pytestmark = pytest.mark.e2e


def spread(counts: Counter[object], brokers: Sequence[int]) -> int:
    """The most minus the fewest over all brokers."""
    return max(counts[broker] for broker in brokers) - min(counts[broker] for broker in brokers)


def first_of(item: dict[str, object]) -> object:
    """The replica that shall lead."""
    replicas = item["replicas"]
    assert isinstance(replicas, list)
    return replicas[0]


def test_replicas_and_leaders_are_spread_evenly_and_survive_a_kill_of_all(
    raftlog_cluster: RaftlogCluster,
) -> None:
    # requirement: T3, RP1
    url, brokers = raftlog_cluster.url, raftlog_cluster.brokers
    shapes = ((1, 1), (2, 1), (5, 1), (4, 3), (7, 3))
    topics = {raftlog_cluster.topic(count, replication=factor): count for count, factor in shapes}
    items = [item for name in topics for item in partitions_of(url, name)]
    replicas: Counter[object] = Counter()
    preferred: Counter[object] = Counter()
    for item in items:
        all_replicas = item["replicas"]
        assert isinstance(all_replicas, list)
        assert len(set(all_replicas)) == len(all_replicas)
        replicas.update(all_replicas)
        preferred[first_of(item)] += 1
    assert spread(replicas, brokers) <= 1, replicas
    # Each preferred replica calls for votes first; on a busy machine another one may overtake a few.
    assert spread(preferred, brokers) <= 1, preferred
    assert spread(Counter(item["leader"] for item in items), brokers) <= 6
    for broker in brokers:
        raftlog_cluster.kill(broker)
    raftlog_cluster.start()
    for name, count in topics.items():
        for partition in range(count):
            raftlog_cluster.leader(name, partition)


def test_three_hundred_partitions_get_leaders_and_then_sleep(cluster: Cluster) -> None:
    url = cluster.urls[0]
    began = time.monotonic()
    made = call(url, "POST", "/v1/topics", {"name": "many", "partitions": 300, "replication_factor": 3})
    assert made.status == 201, made
    created_s = time.monotonic() - began
    eventually(lambda: has_leaders(url, "many", 300), what="300 leaders")
    print(f"300 partitions: created in {created_s:.2f} s, all led after {time.monotonic() - began:.2f} s")
    items = partitions_of(url, "many")
    assert spread(Counter(first_of(item) for item in items), cluster.brokers) <= 1
    # A broker that opens its replicas late, on a busy machine, loses some that it should lead.
    leaders = Counter(item["leader"] for item in items)
    assert min(leaders[broker] for broker in cluster.brokers) >= 20, leaders

    def all_asleep() -> bool:
        return all(cluster.metric("raftlog_raft_groups_quiescent", broker=b) >= 300 for b in cluster.brokers)

    eventually(all_asleep, what="idle groups that cost nothing")
    assert produce(url, "many", ["awake"], partition=299).status == 200
