"""Where replicas and leaders go, with few partitions and with many."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import create_topic, eventually, partitions_of, produce_surely

pytestmark = pytest.mark.e2e

SOON = {"RAFTLOG_BROKER__TIMING__BALANCE_AFTER_MS": "1000"}


@pytest.fixture
def balanced(directory: Path) -> Iterator[Cluster]:
    """Three brokers that give leaderships back to preferred replicas soon."""
    with Cluster(directory, environment=SOON) as brokers:
        yield brokers


def spread(counts: Counter[object], brokers: Sequence[int]) -> int:
    """The most minus the fewest over all brokers."""
    return max(counts[broker] for broker in brokers) - min(counts[broker] for broker in brokers)


def first_of(item: dict[str, object]) -> object:
    """The replica that shall lead."""
    replicas = item["replicas"]
    assert isinstance(replicas, list)
    return replicas[0]


def test_replicas_and_leaders_are_spread_evenly_and_survive_a_kill_of_all(
    balanced: Cluster,
) -> None:
    # requirement: T3, RP1
    url, brokers = balanced.urls[0], balanced.brokers
    shapes = ((1, 1), (2, 1), (5, 1), (4, 3), (7, 3))
    topics = {f"topic-{number}": count for number, (count, _) in enumerate(shapes)}
    for name, (count, factor) in zip(topics, shapes, strict=True):
        create_topic(url, name, count, replication_factor=factor)

    def is_led_by_the_first(name: str) -> bool:
        return all(item["leader"] == first_of(item) for item in partitions_of(url, name))

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
    assert spread(preferred, brokers) <= 1, preferred
    eventually(lambda: all(map(is_led_by_the_first, topics)), what="preferred replicas lead")
    for broker in brokers:
        balanced.kill(broker)
    balanced.start()
    for name, count in topics.items():
        for partition in range(count):
            balanced.leader(name, partition)


def test_three_hundred_partitions_get_leaders_and_then_sleep(balanced: Cluster) -> None:
    cluster, url = balanced, balanced.urls[0]
    began = time.monotonic()
    create_topic(url, "many", 300)
    print(f"300 partitions: all led after {time.monotonic() - began:.2f} s")
    items = partitions_of(url, "many")
    assert spread(Counter(first_of(item) for item in items), cluster.brokers) <= 1

    def are_leaders_spread() -> bool:
        """A broker that opens its replicas late loses some that it should lead, and gets them back."""
        leaders = Counter(item["leader"] for item in partitions_of(url, "many"))
        return min(leaders[broker] for broker in cluster.brokers) >= 20

    eventually(are_leaders_spread, what="every broker leads some")

    def all_asleep() -> bool:
        return all(cluster.metric("raftlog_raft_groups_quiescent", broker=b) >= 300 for b in cluster.brokers)

    eventually(all_asleep, what="idle groups that cost nothing")
    assert produce_surely([url], "many", ["awake"], partition=299) == 0
