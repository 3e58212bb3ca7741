"""Damage that no other replica can repair: the broker begins the replica anew, and nobody is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog.testing.segment_content import content_of
from tests.helpers.damage import flip_a_byte, logs_of
from tests.helpers.real_cluster import create_topic, eventually, produce_surely, read_all

pytestmark = pytest.mark.e2e

RETENTION_BYTES = 12_000
NO_RETENTION = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "3600000"}


@pytest.fixture
def brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers that look after retention five times a second."""
    with Cluster(
        directory, environment={"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "200"}
    ) as cluster:
        yield cluster


def files_of(cluster: Cluster, broker: int, ending: str) -> list[Path]:
    """Files of partition 0 on one broker."""
    return sorted(cluster.data_directory(broker).glob(f"orders-*/Partition-0/*{ending}"))


def log_start(cluster: Cluster, broker: int) -> int:
    """Where the first segment there begins."""
    return int(files_of(cluster, broker, ".log")[0].stem)


def is_cut(cluster: Cluster, broker: int) -> bool:
    """Whether retention has removed all it can: without its first segment, the log is too short."""
    sizes = [len(content_of(path.read_bytes())) for path in files_of(cluster, broker, ".log")]
    return log_start(cluster, broker) > 0 and sum(sizes[1:]) < RETENTION_BYTES


def damage_the_first_segment(cluster: Cluster, broker: int) -> None:
    """While the others go on, and forget what it held."""
    flip_a_byte(files_of(cluster, broker, ".log")[0], 16)


def remove_both_slots(cluster: Cluster, broker: int) -> None:
    """And with them term, vote, and where the log begins."""
    for path in files_of(cluster, broker, "hard_state.?"):
        path.unlink()


def remove_all_states(cluster: Cluster, broker: int) -> None:
    """What the entries before the log have led to."""
    for path in [*files_of(cluster, broker, ".state"), *files_of(cluster, broker, "snapshot")]:
        path.unlink()


def is_well(cluster: Cluster, broker: int) -> bool:
    """Whether nothing waits there for its broker or for somebody."""
    names = ("raftlog_failed_replicas", "raftlog_replicas_needing_operator", "raftlog_repairs_running")
    return not any(cluster.metric(name, broker=broker) for name in names)


# requirement: M3
@pytest.mark.parametrize(
    ("damage", "missed"),
    [
        # Fewer than the log has: else its leader may replace the log before anybody reads the damage.
        (damage_the_first_segment, 15),
        (remove_both_slots, 50),
        (remove_all_states, 50),
    ],
)
def test_a_replica_that_no_other_can_repair_comes_back_by_itself(
    brokers: Cluster, damage: Callable[[Cluster, int], None], missed: int
) -> None:
    create_topic(brokers.urls[0], "orders", 1, segment_bytes=4096, retention_bytes=RETENTION_BYTES)
    values = [f"value-{number}-{'x' * 400}" for number in range(50)]
    for value in values:
        produce_surely(brokers.urls, "orders", [value])
    for broker in brokers.brokers:
        eventually(lambda broker=broker: is_cut(brokers, broker), what="a log that was cut")
    failed = brokers.leader("orders", 0)
    before = log_start(brokers, failed)
    brokers.kill(failed)
    damage(brokers, failed)
    others = [broker for broker in brokers.brokers if broker != failed]
    urls = [brokers.url(broker) for broker in others]
    more = [f"more-{number}-{'x' * 400}" for number in range(missed)]
    for value in more:
        produce_surely(urls, "orders", [value])
    eventually(
        lambda: all(is_cut(brokers, broker) and log_start(brokers, broker) > before for broker in others),
        what="logs that begin behind the damage",
    )
    brokers.launch(failed, environment=NO_RETENTION)  # which may remove the damage before it is found
    brokers.wait_ready(failed)
    eventually(lambda: len(logs_of(brokers, "orders")) == 1, what="all replicas are equal again")
    eventually(lambda: is_well(brokers, failed), what="a broker without failed replicas")
    assert brokers.metric("raftlog_repairs_total", broker=failed) >= 1
    produce_surely(brokers.urls, "orders", ["after"])
    start = max(log_start(brokers, broker) for broker in brokers.brokers)
    for url in brokers.urls:
        found = read_all(url, "orders", start=start)
        assert [value for _, value in found] == [*values, *more, "after"][-len(found) :]
    brokers.kill(others[0])  # it votes and acknowledges like any other
    produce_surely([brokers.url(failed), brokers.url(others[1])], "orders", ["with it"])
