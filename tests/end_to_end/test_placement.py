"""Where replicas and leaders go, with few partitions and with many."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import call, create_topic, eventually, has_leaders, partitions_of, produce

pytestmark = pytest.mark.e2e


def spread(counts: Counter[object], brokers: list[int]) -> int:
    """The most minus the fewest over all brokers."""
    return max(counts[broker] for broker in brokers) - min(counts[broker] for broker in brokers)


def test_replicas_and_leaders_are_spread_evenly_and_survive_a_kill_of_all(cluster: Cluster) -> None:
    # requirement: T3, RP1
    url = cluster.urls[0]
    topics = {"one": (1, 1), "two": (2, 1), "five": (5, 1), "four": (4, 3), "seven": (7, 3)}
    for name, (partitions, factor) in topics.items():
        create_topic(url, name, partitions, replication_factor=factor)
    items = [item for name in topics for item in partitions_of(url, name)]
    replicas: Counter[object] = Counter()
    preferred: Counter[object] = Counter()
    for item in items:
        all_replicas = item["replicas"]
        assert isinstance(all_replicas, list)
        assert len(set(all_replicas)) == len(all_replicas)
        replicas.update(all_replicas)
        preferred[all_replicas[0]] += 1
    assert spread(replicas, cluster.brokers) <= 1, replicas
    # Each preferred replica calls for votes first; on a busy machine another one may overtake a few.
    assert spread(preferred, cluster.brokers) <= 1, preferred
    assert spread(Counter(item["leader"] for item in items), cluster.brokers) <= 6
    for broker in cluster.brokers:
        cluster.kill(broker)
    cluster.start(wait_s=60)
    for name, (partitions, _) in topics.items():
        eventually(
            lambda name=name, partitions=partitions: has_leaders(url, name, partitions),
            within_s=20,
            what=f"leaders of {name}",
        )


def test_three_hundred_partitions_get_leaders_and_then_sleep(cluster: Cluster) -> None:
    url = cluster.urls[0]
    began = time.monotonic()
    made = call(url, "POST", "/v1/topics", {"name": "many", "partitions": 300, "replication_factor": 3})
    assert made.status == 201, made
    created_s = time.monotonic() - began
    eventually(lambda: has_leaders(url, "many", 300), within_s=60, what="300 leaders")
    print(f"300 partitions: created in {created_s:.2f} s, all led after {time.monotonic() - began:.2f} s")
    assert spread(Counter(item["leader"] for item in partitions_of(url, "many")), cluster.brokers) <= 60

    def all_asleep() -> bool:
        return all(cluster.metric("raftlog_raft_groups_quiescent", broker=b) >= 300 for b in cluster.brokers)

    eventually(all_asleep, within_s=60, what="idle groups that cost nothing")
    assert produce(url, "many", ["awake"], partition=299).status == 200
