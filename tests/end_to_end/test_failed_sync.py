"""A disk that fails a sync: that replica's life ends, everything else goes on, a restart brings it back.

Also disks that are full or slow, and wrong clocks. The faults are preloaded into the brokers
(``chaos.harness.shim``); without a C compiler the tests are skipped and say so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.harness.shim.shim import Shim, missing
from chaos.workload import Shape, Workload
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import (
    create_topic,
    eventually,
    partitions_of,
    produce,
    produce_surely,
    read_all,
    settled,
)

pytestmark = pytest.mark.e2e

PARTITIONS = 3


def preloaded(cluster: Cluster) -> dict[int, Shim]:
    """One for each broker, which starts with it."""
    if reason := missing():
        pytest.skip(reason)
    shims = {broker: Shim(cluster.data_directory(broker)) for broker in cluster.brokers}
    for broker, shim in shims.items():
        cluster.add_environment(broker, shim.environment)
    return shims


Shimmed = tuple[Cluster, dict[int, Shim]]


@pytest.fixture(scope="module")
def together() -> Iterator[Shimmed]:
    """Three brokers with their shims. With a preloaded library they are programs, whose start is dear."""
    with tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name:
        cluster = Cluster(Path(name) / "cluster")
        shims = preloaded(cluster)
        with cluster:
            yield cluster, shims


@pytest.fixture
def shimmed(together: Shimmed) -> Shimmed:
    """The brokers that the tests share, whole and with empty logs. Each test has topics of its own."""
    cluster, shims = together
    for broker in cluster.brokers:
        shims[broker].heal()
        if broker not in cluster.running:
            cluster.start(broker)
        eventually(partial(has_all_replicas, cluster, broker), what=f"all replicas of broker {broker}")
    assert cluster.broken() == []
    for broker in cluster.brokers:
        os.truncate(cluster.data_directory(broker).parent / "log", 0)
    return together


def has_all_replicas(cluster: Cluster, broker: int) -> bool:
    """Whether no replica of a broker has failed."""
    return cluster.metric("raftlog_failed_replicas", broker=broker) == 0


def is_kept_by_all(cluster: Cluster, broker: int, topic: str, partition: int) -> bool:
    """Whether a record that is sent to a broker is stored, by every replica that is in sync."""
    answer = produce(cluster.url(broker), topic, ["x"], partition=partition, query="?acks=every")
    assert answer.status in (200, 503, 504), answer
    return answer.status == 200


def test_a_failed_sync_stops_that_replica_only(shimmed: Shimmed) -> None:
    # requirement: N4
    cluster, shims = shimmed
    create_topic(cluster.urls[0], "orders", 1)
    create_topic(cluster.urls[0], "other", 3)
    produce_surely(cluster.urls, "orders", ["a"])
    failed = cluster.leader("orders", 0)
    pid = cluster.pid(failed)
    shims[failed].failing_sync(f"broker-{failed}/data/orders-")

    assert produce_surely(cluster.urls, "orders", ["b"]) > 0  # by whoever leads then
    eventually(
        lambda: cluster.metric("raftlog_failed_replicas", broker=failed) == 1,
        what="the replica whose sync failed is reported",
    )
    eventually(lambda: cluster.leader("orders", 0) != failed, what="another leader")
    eventually(lambda: f"broker {failed} stops" in cluster.log_text(failed), what="its log says so")
    assert shims[failed].effects()["failed_syncs"] > 0

    shims[failed].heal()  # a disk that works again changes nothing: what it holds is not known
    for partition in range(3):
        eventually(partial(is_kept_by_all, cluster, failed, "other", partition), what="a record")
    produce_surely(cluster.urls, "orders", ["c"])
    eventually(  # it is verified and reopened half a minute later, which may be now
        lambda: (
            cluster.metric("raftlog_failed_replicas", broker=failed) == 1
            or "serves again" in cluster.log_text(failed)
        ),
        what="the replica is still reported",
    )
    assert (cluster.pid(failed), cluster.running) == (pid, [1, 2, 3])

    assert cluster.stop(failed) == 0
    cluster.start(failed)
    assert cluster.metric("raftlog_failed_replicas", broker=failed) == 0
    eventually(
        lambda: produce(cluster.url(failed), "orders", ["d"], query="?acks=3&timeout=1s").status == 200,
        what="all three replicas take part again",
    )
    assert [value for _, value in read_all(cluster.url(failed), "orders")][:3] == ["a", "b", "c"]


def test_a_broker_whose_metadata_log_fails_a_sync_goes_on_and_comes_back_to_it(shimmed: Shimmed) -> None:
    # requirement: N4
    cluster, shims = shimmed
    create_topic(cluster.urls[0], "apart", 3)
    for partition in range(3):
        produce_surely(cluster.urls, "apart", ["a"], partition=partition)
    failed = settled(cluster.urls[0], "GET", "/v1/cluster/controller").number("broker_id")
    well = next(broker for broker in cluster.brokers if broker != failed)
    shims[failed].failing_sync(f"broker-{failed}/data/__cluster_metadata")

    create_topic(cluster.url(well), "made-without-it", 1)
    eventually(
        lambda: f"group 0 on broker {failed} stops" in cluster.log_text(failed),
        what="it says that it has left",
    )
    for partition in range(3):
        eventually(partial(is_kept_by_all, cluster, failed, "apart", partition), what="a record")
    shims[failed].heal()
    eventually(
        lambda: "the metadata log serves again" in cluster.log_text(failed),
        what="it comes back to the metadata group",
    )
    create_topic(cluster.url(failed), "made-by-it", 1)
    assert cluster.running == [1, 2, 3]


# requirement: N4
def test_a_leader_whose_reads_fail_leaves_the_partition_to_others(shimmed: Shimmed) -> None:
    cluster, shims = shimmed
    values = [f"{number} {'x' * 2000}" for number in range(200)]
    create_topic(cluster.urls[0], "unread", 1, segment_bytes=65_536)
    for first in range(0, len(values), 20):
        produce_surely(cluster.urls, "unread", values[first : first + 20])

    def failed_leader() -> int | None:
        """The leader, whose reads fail now. If another one leads by then, none of them fails."""
        leader = cluster.leader("unread", 0)
        shims[leader].failing_read("/unread-")
        assert [value for _, value in read_all(cluster.url(leader), "unread")] == values, "from others"
        if shims[leader].effects()["failed_reads"] > 0:
            return leader
        shims[leader].heal()
        return None

    failed = eventually(failed_leader, what="a leader whose reads fail")
    eventually(lambda: cluster.leader("unread", 0) != failed, what="another leader")
    eventually(
        lambda: cluster.metric("raftlog_failed_replicas", broker=failed) == 1,
        what="the replica whose reads failed is reported",
    )
    produce_surely(cluster.urls, "unread", ["b"])

    shims[failed].heal()
    assert cluster.stop(failed) == 0
    cluster.start(failed)
    eventually(
        lambda: produce(cluster.url(failed), "unread", ["c"], query="?acks=3&timeout=1s").status == 200,
        what="all three replicas take part again",
    )
    found = [value for _, value in read_all(cluster.url(failed), "unread")]
    assert found[: len(values) + 1] == [*values, "b"]
    assert cluster.broken() == []


# requirement: N4
def test_a_leader_whose_disk_is_full_hands_over_and_records_go_on(shimmed: Shimmed) -> None:
    cluster, shims = shimmed
    create_topic(cluster.urls[0], "handed-over", 1)
    produce_surely(cluster.urls, "handed-over", ["a"])
    full = cluster.leader("handed-over", 0)
    shims[full].full(True)
    eventually(
        lambda: cluster.leader("handed-over", 0) != full,
        what="a broker with room leads",
    )
    produce_surely(cluster.urls, "handed-over", ["b"])
    assert [value for _, value in read_all(cluster.url(full), "handed-over")] == ["a", "b"]
    shims[full].heal()
    produce_surely(cluster.urls, "handed-over", ["c"])
    assert cluster.running == [1, 2, 3]


def replicas_led_by(cluster: Cluster, broker: int, topic: str) -> list[int]:
    """The partitions of a topic that one broker leads, as another one knows it."""
    other = next(each for each in cluster.brokers if each != broker)
    items = partitions_of(cluster.url(other), topic)
    return [number for number, item in enumerate(items) if item["leader"] in (broker, None)]


@contextmanager
def loaded(shimmed: Shimmed, topic: str) -> Iterator[tuple[Cluster, int, Shim, Workload]]:
    """Brokers under a load that is judged in the end, the leader of a partition, and its disk."""
    cluster, shims = shimmed
    create_topic(cluster.urls[0], topic, PARTITIONS)
    shape = Shape(producers=2)  # the brokers may need half a minute
    with Workload(cluster.urls, topic, partitions=PARTITIONS, seed=SEED, shape=shape) as load:
        load.wait_for_acknowledged(100)
        leader = cluster.leader(topic, 0)
        yield cluster, leader, shims[leader], load
        load.wait_for_acknowledged(100)
    judge(load)


# requirement: N4
def test_a_full_disk_under_load_leads_nothing_and_every_partition_has_a_leader(shimmed: Shimmed) -> None:
    with loaded(shimmed, "full") as (cluster, full, shim, load):
        shim.full(True)
        eventually(
            lambda: not replicas_led_by(cluster, full, "full"), what="brokers with room lead all partitions"
        )
        load.wait_for_acknowledged(100)
        shim.heal()


def test_a_leader_refuses_while_all_disks_are_full(shimmed: Shimmed) -> None:
    cluster, shims = shimmed
    create_topic(cluster.urls[0], "refused", 1)
    produce_surely(cluster.urls, "refused", ["a"])
    for shim in shims.values():
        shim.full(True)
    leader = cluster.leader("refused", 0)
    eventually(
        lambda: produce(cluster.url(leader), "refused", ["b"], query="?timeout=1s").status == 507,
        what="the leader refuses records",
    )
    assert read_all(cluster.url(leader), "refused")[0][1] == "a"
    for shim in shims.values():
        shim.heal()
    produce_surely(cluster.urls, "refused", ["c"])
    assert cluster.running == [1, 2, 3]


def has_effect(shim: Shim, effect: str, before: int) -> bool:
    """Whether a fault has changed something since then. A follower may be late."""
    return shim.effects()[effect] > before


def test_a_leader_serves_on_a_slow_disk_and_under_a_wrong_clock(shimmed: Shimmed) -> None:
    cluster, shims = shimmed
    faults: list[tuple[str, Callable[[Shim], None]]] = [
        ("slowed", lambda shim: shim.slow(100)),
        ("moved_clock_reads", lambda shim: shim.clock_offset(3_600_000)),
        ("moved_clock_reads", lambda shim: shim.clock_offset(-3_600_000)),
    ]
    create_topic(cluster.urls[0], "slow", 1)
    for effect, begin in faults:
        broken = shims[cluster.leader("slow", 0)]
        before = broken.effects()[effect]
        begin(broken)
        for number in range(5):
            produce_surely(cluster.urls, "slow", [f"{effect} {number}"])
        eventually(partial(has_effect, broken, effect, before), what=f"a disk or clock that is {effect}")
        broken.heal()
    assert cluster.running == [1, 2, 3]


# requirement: N4
def test_a_read_only_disk_under_load_is_replaced_and_served_again(shimmed: Shimmed) -> None:
    with loaded(shimmed, "read-only") as (cluster, broken, shim, load):
        shim.read_only(True)
        eventually(
            lambda: not replicas_led_by(cluster, broken, "read-only"),
            what="other brokers lead what has records",
        )
        load.wait_for_acknowledged(100)
        eventually(lambda: "Read-only file system" in cluster.log_text(broken), what="its log says why")
        shim.heal()
        eventually(
            lambda: "serves again" in cluster.log_text(broken),
            what="the broker serves its replicas again",
        )
