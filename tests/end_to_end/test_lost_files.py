"""A broker comes back without some of its files, and another is away or dies: nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.end_to_end.test_damaged_logs import logs_of
from tests.helpers.real_cluster import (
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    produce_surely,
    read_all,
)

pytestmark = pytest.mark.e2e

TOPIC = "orders"
WITHIN_S = 60
REPLICA = f"{TOPIC}-*/Partition-0"
FOLDERS = (REPLICA, f"{TOPIC}-*", "__cluster_metadata", "*")
FILES = (
    *(
        f"{REPLICA}/{name}"
        for name in ("*.log", "*.index", "hard_state.a", "hard_state.?", "members", "epochs")
    ),
    f"{REPLICA}/*.state",
    *(f"__cluster_metadata/Partition-0/{name}" for name in ("*.log", "hard_state.?", "members", "snapshot")),
    *(f"{name}*" for name in ("raftlog.json", "disk_id", "bootstrap_id", "replicas")),
)


@pytest.fixture
def brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers that keep a state of each small segment."""
    with Cluster(directory) as cluster:
        yield cluster


def lose(cluster: Cluster, broker: int, pattern: str) -> None:
    """Remove what matches below the data directory of a broker that does not run."""
    for path in cluster.data_directory(broker).glob(pattern):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def is_whole(cluster: Cluster, broker: int) -> bool:
    """Whether the broker serves all replicas, and each of them votes."""
    names = ("raftlog_failed_replicas", "raftlog_rejoining_replicas", "raftlog_repairs_running")
    return not any(cluster.metric(name, broker=broker) for name in names)


def fill(cluster: Cluster, values: list[str]) -> None:
    """Produce to some segments, one request each."""
    urls = [cluster.url(broker) for broker in cluster.running]
    for value in values:
        produce_surely(urls, TOPIC, [value])


def named(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}-{'x' * 300}" for number in range(count)]


def check_all_is_there(cluster: Cluster, values: list[str]) -> None:
    """Every acknowledged value once and in order at every broker; all replicas whole and equal."""
    for broker in cluster.brokers:
        eventually(partial(is_whole, cluster, broker), within_s=WITHIN_S, what=f"broker {broker} is whole")
    eventually(lambda: len(logs_of(cluster, TOPIC)) == 1, within_s=WITHIN_S, what="all replicas are equal")
    for url in cluster.urls:
        assert [value for _, value in read_all(url, TOPIC)] == values


def another_is_down(cluster: Cluster, pattern: str) -> None:
    """The third broker lacks what the first two acknowledged; the second goes, the first has lost files."""
    leader = cluster.leader(TOPIC, 0)
    behind, loser = (broker for broker in cluster.brokers if broker != leader)
    values = named("first", 40)
    fill(cluster, values)
    cluster.kill(behind)
    more = named("more", 10)
    fill(cluster, more)
    cluster.kill(leader)
    cluster.kill(loser)
    lose(cluster, loser, pattern)
    cluster.launch(behind)
    cluster.launch(loser)
    said = eventually(
        lambda: _unled_or_led_by(cluster, behind, loser), within_s=WITHIN_S, what="one word of what goes on"
    )
    if said == "led":  # nothing was lost that counts: those two are a majority that holds everything
        fill(cluster, named("between", 1))
        more += named("between", 1)
    cluster.start(leader)
    fill(cluster, named("after", 3))
    check_all_is_there(cluster, [*values, *more, *named("after", 3)])


def _unled_or_led_by(cluster: Cluster, behind: int, loser: int) -> str | None:
    """Waits for the third broker, and says so; or has a leader that holds everything."""
    said = ("gives no vote yet: no leader", "is not repaired yet", "is not mended yet", "not mended yet")
    if any(words in cluster.log_text(broker) for broker in (behind, loser) for words in said):
        return "waits"
    items = [item for broker in (behind, loser) for item in partitions_of(cluster.url(broker), TOPIC)]
    if any(item["leader"] for item in items):
        return "led"
    return "waits" if any(item["rejoining"] for item in items) else None


def another_dies(cluster: Cluster, pattern: str) -> None:
    """Each of the others is killed in turn, as soon as the one that has lost files is back."""
    loser = cluster.leader(TOPIC, 0)
    values = named("first", 40)
    fill(cluster, values)
    for number, other in enumerate([broker for broker in cluster.brokers if broker != loser]):
        cluster.kill(loser)
        lose(cluster, loser, pattern)
        cluster.start(loser)
        cluster.kill(other)
        cluster.start(other)
        eventually(
            lambda: has_leaders(cluster.url(loser), TOPIC, 1), within_s=WITHIN_S, what="a leader after all"
        )
        fill(cluster, named(f"round-{number}", 5))
        values += named(f"round-{number}", 5)
    check_all_is_there(cluster, values)


CASES = [
    pytest.param(pattern, story, marks=[] if is_quick else pytest.mark.slow)
    for pattern in (*FOLDERS, *FILES)
    for story, is_quick in ((another_is_down, pattern == REPLICA), (another_dies, False))
]


# requirement: F6
@pytest.mark.parametrize(("pattern", "story"), CASES)
def test_a_broker_that_lost_files_loses_nothing_that_was_acknowledged(
    brokers: Cluster, pattern: str, story: Callable[[Cluster, str], None]
) -> None:
    create_topic(brokers.urls[0], TOPIC, 1, segment_bytes=4096)
    story(brokers, pattern)
    assert all(broker in brokers.running for broker in brokers.brokers)
