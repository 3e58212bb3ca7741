"""What a restart finds: a torn tail is cut, damage below a promise stops that replica and is reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import (
    create_topic,
    eventually,
    partitions_of,
    produce,
    produce_surely,
    read_all,
)

pytestmark = pytest.mark.e2e


def active_segment(cluster: Cluster, broker: int, topic: str) -> Path:
    """The newest segment file of partition 0 on one broker."""
    found = sorted(cluster.data_directory(broker).glob(f"{topic}-*/Partition-0/*.log"))
    return found[-1]


@pytest.mark.parametrize("tail", ["garbage", "half a batch", "zeros"])
def test_a_torn_tail_is_cut_and_nothing_acknowledged_is_lost(cluster: Cluster, tail: str) -> None:
    # requirement: L9
    create_topic(cluster.urls[0], "orders", 1)
    values = [f"value-{number}" for number in range(20)]
    for value in values:
        produce_surely(cluster.urls, "orders", [value])
    for broker in cluster.brokers:
        cluster.kill(broker)
    for broker in cluster.brokers:
        segment = active_segment(cluster, broker, "orders")
        whole = segment.read_bytes()
        torn = {
            "garbage": random.Random(broker).randbytes(1000),
            "half a batch": whole[: 12 + int.from_bytes(whole[8:12], "big") - 7],
            "zeros": bytes(4096),
        }[tail]
        with segment.open("ab") as file:
            file.write(torn)
    cluster.start(wait_s=60)
    produce_surely(cluster.urls, "orders", ["after"])
    assert [value for _, value in read_all(cluster.urls[0], "orders")] == [*values, "after"]
    assert all(cluster.metric("raftlog_failed_replicas", broker=broker) == 0 for broker in cluster.brokers)


def test_damage_below_what_was_promised_stops_that_replica_only_and_is_reported(cluster: Cluster) -> None:
    # requirement: M3
    create_topic(cluster.urls[0], "orders", 1)
    create_topic(cluster.urls[0], "other", 1)
    values = [f"value-{number}" for number in range(20)]
    for value in values:
        produce_surely(cluster.urls, "orders", [value])
    produce_surely(cluster.urls, "other", ["x"])
    sick = cluster.leader("orders", 0)
    cluster.kill(sick)
    segment = active_segment(cluster, sick, "orders")
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))
    damaged = segment.read_bytes()
    cluster.start(sick)
    eventually(
        lambda: cluster.metric("raftlog_failed_replicas", broker=sick) == 1,
        within_s=20,
        what="the damaged replica is reported",
    )
    assert "orders/0 is not served" in cluster.log_text(sick)
    assert segment.read_bytes() == damaged, "damage is kept for people to look at"
    produce_surely(cluster.urls, "orders", ["after"])
    for url in cluster.urls:
        assert [value for _, value in read_all(url, "orders")] == [*values, "after"]
    status = partitions_of(cluster.url(sick), "orders")[0]
    assert status["leader"] != sick
    answer = produce(cluster.url(sick), "other", ["y"], query="?acks=every")
    assert answer.status == 200, answer
    assert cluster.metric("raftlog_failed_replicas", broker=sick) == 1
