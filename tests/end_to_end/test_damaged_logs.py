"""What a restart finds: a torn tail is cut, damage below a promise is repaired from the peers."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from chaos.cluster import Cluster
from raftlog.testing.segment_content import content_of
from tests.helpers.command_line import attempt
from tests.helpers.damage import flip_a_byte, logs_of
from tests.helpers.real_cluster import (
    create_topic,
    eventually,
    produce_surely,
    read_all,
)

pytestmark = pytest.mark.e2e


def active_segment(cluster: Cluster, broker: int, topic: str) -> Path:
    """The newest segment file of partition 0 on one broker."""
    found = sorted(cluster.data_directory(broker).glob(f"{topic}-*/Partition-0/*.log"))
    return found[-1]


def has_records(cluster: Cluster, broker: int) -> bool:
    """Whether a broker has opened partition 0 of ``orders``, and has got some of it."""
    logs = cluster.data_directory(broker).glob("orders-*/Partition-0/*.log")
    return any(content_of(path.read_bytes()) for path in logs)


@pytest.mark.parametrize("tail", ["garbage", "half a batch", "zeros"])
def test_a_torn_tail_is_cut_and_nothing_acknowledged_is_lost(cluster: Cluster, tail: str) -> None:
    # requirement: L9
    create_topic(cluster.urls[0], "orders", 1)
    values = [f"value-{number}" for number in range(20)]
    for value in values:
        produce_surely(cluster.urls, "orders", [value])
    eventually(lambda: all(map(partial(has_records, cluster), cluster.brokers)), what="a log on each broker")
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
    cluster.start()
    produce_surely(cluster.urls, "orders", ["after"])
    assert [value for _, value in read_all(cluster.urls[0], "orders")] == [*values, "after"]
    assert all(cluster.metric("raftlog_failed_replicas", broker=broker) == 0 for broker in cluster.brokers)


def verify(cluster: Cluster, directory: Path) -> Result:
    """``raftlog verify`` on the data of stopped brokers."""
    return attempt(cluster.bootstrap, "verify", "--data", str(directory))


@pytest.mark.parametrize("where", ["active segment", "closed segment", "metadata log"])
def test_a_damaged_log_is_repaired_from_its_peers_while_the_others_go_on(
    cluster: Cluster, where: str
) -> None:
    # requirement: M3
    create_topic(cluster.urls[0], "orders", 1, segment_bytes=4096)
    create_topic(cluster.urls[0], "other", 1)
    values = [f"value-{number}-{'x' * 400}" for number in range(40)]
    for value in values:
        produce_surely(cluster.urls, "orders", [value])
    produce_surely(cluster.urls, "other", ["x"])
    failed = cluster.leader("orders", 0)
    assert cluster.stop(failed) == 0  # killed, it may lack the note of its newest batches' durable end
    produce_surely(cluster.urls[: failed - 1] + cluster.urls[failed:], "orders", ["without it"])
    found = {
        "active segment": active_segment(cluster, failed, "orders"),
        "closed segment": sorted(cluster.data_directory(failed).glob("orders-*/Partition-0/*.log"))[1],
        "metadata log": next(cluster.data_directory(failed).glob("__cluster_metadata/Partition-0/*.log")),
    }[where]
    # Opening looks at the first batch of a closed segment only; the rest is for readers and scrubs.
    flip_a_byte(found, 16 if where == "closed segment" else found.stat().st_size // 3)
    told = verify(cluster, cluster.data_directory(failed))
    assert told.exit_code == 1, told.output
    assert found.name in told.stdout
    cluster.start(failed)
    for url in cluster.urls:
        assert [value for _, value in read_all(url, "orders")] == [*values, "without it"]
    eventually(lambda: len(logs_of(cluster, "orders")) == 1, what="all replicas are equal again")
    produce_surely(cluster.urls, "orders", ["after"])
    eventually(
        lambda: cluster.metric("raftlog_failed_replicas", broker=failed) == 0,
        what="the replica is open again",
    )
    for broker in cluster.brokers:
        cluster.stop(broker)
    assert verify(cluster, cluster.directory).exit_code == 0, "one by one, and compared with each other"
