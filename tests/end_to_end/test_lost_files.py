"""A broker comes back without some of its files, and another is down or dies: nothing is lost.

``KINDS`` names every kind of file and folder in a data directory. ``docs/repair.md`` has the same rows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.damage import logs_of
from tests.helpers.real_cluster import (
    call,
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    produce,
    produce_surely,
    read_all,
)

TOPIC = "orders"
REPLICA = f"{TOPIC}-*/Partition-0"
METADATA = "__cluster_metadata/Partition-0"
WAITS, GOES_ON = "waits for the broker that is down", "goes on"


def nothing(cluster: Cluster) -> None:
    """The files that a running broker has are enough."""


def restarted(cluster: Cluster) -> None:
    """Brokers leave a checkpoint of the metadata and of each replica when they stop."""
    assert cluster.stop_all() == [0, 0, 0]
    cluster.start()
    eventually(lambda: has_leaders(cluster.urls[0], TOPIC, 1), what="a leader")


def a_topic_deleted(cluster: Cluster) -> None:
    """Brokers keep its folder for a while."""
    create_topic(cluster.urls[0], "deleted")
    eventually(  # by this request, or by one before it without an answer
        lambda: call(cluster.urls[0], "DELETE", "/v1/topics/deleted").status in (200, 404),
        what="a topic that is deleted",
    )
    trashes = [cluster.data_directory(broker) / "trash" for broker in cluster.brokers]
    eventually(
        lambda: all(trash.exists() and [*trash.iterdir()] for trash in trashes),
        what="the folders are in the trash",
    )


@dataclass(frozen=True)
class Kind:
    """Files or folders that are lost together: what each pattern matches, or one of it."""

    name: str
    patterns: tuple[str, ...]
    then: str  # what the partition does while another broker is down
    chosen: slice = field(default_factory=lambda: slice(None))  # of all that match, in order of their names
    prepare: Callable[[Cluster], None] = nothing
    is_quick: bool = False


KINDS = (
    Kind("the folder of a replica", (REPLICA,), WAITS, is_quick=True),
    Kind("the folder of a topic", (f"{TOPIC}-*",), WAITS),
    Kind("all segments", (f"{REPLICA}/*.log",), WAITS),
    Kind("the first segment", (f"{REPLICA}/*.log",), WAITS, chosen=slice(0, 1), is_quick=True),
    Kind("the active segment", (f"{REPLICA}/*.log",), WAITS, chosen=slice(-1, None)),
    Kind("indexes", (f"{REPLICA}/*.index",), GOES_ON),
    Kind("one slot", (f"{REPLICA}/hard_state.a",), WAITS),
    Kind("both slots", (f"{REPLICA}/hard_state.?",), WAITS, is_quick=True),
    Kind("both slots and all segments", (f"{REPLICA}/hard_state.?", f"{REPLICA}/*.log"), WAITS),
    Kind("`members`", (f"{REPLICA}/members",), GOES_ON),
    Kind("`epochs`", (f"{REPLICA}/epochs",), GOES_ON),
    Kind("states", (f"{REPLICA}/*.state",), GOES_ON),
    Kind("states and `snapshot`", (f"{REPLICA}/*.state", f"{REPLICA}/snapshot"), GOES_ON, prepare=restarted),
    Kind("the folder of the metadata", ("__cluster_metadata",), WAITS, is_quick=True),
    Kind("segments of the metadata", (f"{METADATA}/*.log",), WAITS),
    Kind("both slots of the metadata", (f"{METADATA}/hard_state.?",), WAITS),
    Kind("`members` of the metadata", (f"{METADATA}/members",), GOES_ON),
    Kind("`snapshot` of the metadata", (f"{METADATA}/snapshot",), GOES_ON, prepare=restarted),
    Kind("`raftlog.json`", ("raftlog.json*",), GOES_ON),
    Kind("`lock`", ("lock",), GOES_ON),
    Kind("`disk_id`", ("disk_id*",), GOES_ON),
    Kind("`disk_age`", ("disk_age*",), GOES_ON),  # it is as young again as it was
    Kind("`replicas`", ("replicas*",), GOES_ON),
    Kind("`replica_progress`", ("replica_progress*",), GOES_ON, prepare=restarted),
    Kind("`replicas` and the folder of a replica", ("replicas*", REPLICA), WAITS),
    Kind("`applied_metadata`", ("applied_metadata*",), GOES_ON),
    Kind("one of each two that are kept twice", ("*.twin",), GOES_ON),
    Kind("`trash`", ("trash",), GOES_ON, prepare=a_topic_deleted),
    Kind("everything but the metadata", ("[!_]*",), WAITS),
    Kind("the whole data directory", ("*",), WAITS, is_quick=True),
)


@pytest.fixture
def brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers that keep a state of each small segment."""
    with Cluster(
        directory, environment={"RAFTLOG_BROKER__TIMING__DISK_AGE_INTERVAL_MS": "3600000"}
    ) as cluster:
        yield cluster


def lose(cluster: Cluster, broker: int, kind: Kind) -> None:
    """Remove it from the data directory of a broker that does not run. What was prepared is lost once."""
    for pattern in kind.patterns:
        found = sorted(cluster.data_directory(broker).glob(pattern))[kind.chosen]
        assert found or kind.prepare is not nothing, f"broker {broker} has nothing like {pattern}"
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def is_whole(cluster: Cluster, broker: int) -> bool:
    """Whether the broker serves all replicas, and each of them votes."""
    names = ("raftlog_failed_replicas", "raftlog_rejoining_replicas", "raftlog_repairs_running")
    return cluster.is_ready(broker) and not any(cluster.metric(name, broker=broker) for name in names)


def wait_until_whole(cluster: Cluster) -> None:
    """All replicas of all brokers, and those of the topic are equal."""
    for broker in cluster.brokers:
        eventually(partial(is_whole, cluster, broker), what=f"broker {broker} is whole")
    eventually(lambda: len(logs_of(cluster, TOPIC)) == 1, what="all replicas are equal")


def fill(cluster: Cluster, name: str, count: int) -> list[str]:
    """Values that were acknowledged, one request each: a state or two for each ten."""
    values = [f"{name}-{number}-{'x' * 300}" for number in range(count)]
    urls = [cluster.url(broker) for broker in cluster.running]
    for value in values:
        produce_surely(urls, TOPIC, [value])
    return values


def another_is_down(cluster: Cluster, kind: Kind) -> list[str]:
    """Each of the two others is down once; the one that stays up then lacks what was acknowledged last.

    So nothing may be acknowledged, or be given up, unless the loser's files still tell what it acknowledged.
    """
    leader = cluster.leader(TOPIC, 0)
    loser, *others = sorted(cluster.brokers, key=lambda broker: broker == leader)
    values = fill(cluster, "first", 40)
    for down, behind in (others, others[::-1]):
        cluster.kill(behind)
        values += fill(cluster, f"without-{behind}", 10)
        cluster.kill(down)
        cluster.kill(loser)
        lose(cluster, loser, kind)
        cluster.launch(behind)
        cluster.launch(loser)
        began = time.monotonic()
        if kind.then == WAITS:
            eventually(
                partial(says_that_it_waits, cluster, behind=behind, down=down, loser=loser),
                what="one word of what it waits for",
            )
            eventually(partial(is_refused, cluster, behind), what="the refusal of a record")
        else:
            cluster.wait_ready(behind, loser)
            values += fill(cluster, f"between-{down}", 1)
        said = time.monotonic()
        cluster.start(down)
        cluster.wait_ready(*cluster.brokers)
        values += fill(cluster, f"after-{down}", 3)
        wait_until_whole(cluster)
        whole = time.monotonic()
        print(f"{down} is down: {kind.then} after {said - began:.1f} s, whole {whole - said:.1f} s later")
    return values


def says_that_it_waits(cluster: Cluster, *, behind: int, down: int, loser: int) -> bool:
    """Whether the partition names the broker that is down, and the one that is there and of no help yet."""
    for item in partitions_of(cluster.url(behind), TOPIC):  # there is one, once the broker knows it
        rejoining, awaited = str(item["rejoining"]), str(item["awaited"])
        return item["leader"] is None and str(down) in awaited and str(loser) in rejoining + awaited
    return False


def is_refused(cluster: Cluster, broker: int) -> bool:
    """Whether a record is refused for lack of a leader. A broker that is asked and late leaves it unknown."""
    answer = produce(cluster.url(broker), TOPIC, ["refused"], query="?timeout=200ms")
    assert answer.status in (503, 504), answer
    return answer.status == 503


def another_dies(cluster: Cluster, kind: Kind) -> list[str]:
    """Each of the others is killed in turn, as soon as the one that has lost files is back."""
    loser = cluster.leader(TOPIC, 0)
    values = fill(cluster, "first", 40)
    for other in [broker for broker in cluster.brokers if broker != loser]:
        cluster.kill(loser)
        lose(cluster, loser, kind)
        cluster.start(loser)
        cluster.kill(other)
        began = time.monotonic()
        cluster.start(other)
        eventually(lambda: has_leaders(cluster.url(loser), TOPIC, 1), what="a leader")
        values += fill(cluster, f"round-{other}", 5)
        serves = time.monotonic()
        wait_until_whole(cluster)
        whole = time.monotonic()
        print(f"{other} is killed: serves after {serves - began:.1f} s, whole {whole - serves:.1f} s later")
    return values


CASES = [
    pytest.param(kind, story, id=f"{kind.name.replace('`', '')}-{story.__name__}", marks=mark)
    for kind in KINDS
    for story in (another_is_down, another_dies)
    for mark in [pytest.mark.e2e if kind.is_quick and story is another_is_down else pytest.mark.slow]
]


# requirement: F6
@pytest.mark.parametrize(("kind", "story"), CASES)
def test_what_was_acknowledged_is_there_after_a_broker_lost_files(
    brokers: Cluster, kind: Kind, story: Callable[[Cluster, Kind], list[str]]
) -> None:
    create_topic(brokers.urls[0], TOPIC, 1, segment_bytes=4096)
    kind.prepare(brokers)
    values = story(brokers, kind)
    for url in brokers.urls:
        assert [value for _, value in read_all(url, TOPIC)] == values
    assert brokers.running == brokers.brokers


# requirement: F6
@pytest.mark.slow
def test_every_file_of_a_data_directory_is_of_a_kind_that_is_lost(brokers: Cluster) -> None:
    create_topic(brokers.urls[0], TOPIC, 1, segment_bytes=4096)
    fill(brokers, "first", 40)
    for prepare in (a_topic_deleted, restarted):
        prepare(brokers)
    folders = {REPLICA, f"{TOPIC}-*", "__cluster_metadata", "[!_]*", "*"}
    patterns = {pattern for kind in KINDS for pattern in kind.patterns} - folders
    for broker in brokers.brokers:
        root = brokers.data_directory(broker)
        covered = {path for pattern in patterns for path in root.glob(pattern)}
        files = [path for path in root.rglob("*") if path.is_file() and "/moved-" not in str(path)]
        assert [path for path in files if not {path, *path.parents} & covered] == []
        assert [pattern for pattern in patterns if not any(root.glob(pattern))] == []


# requirement: F6
@pytest.mark.e2e
def test_a_broker_without_metadata_denies_no_topic_to_a_group(brokers: Cluster) -> None:
    create_topic(brokers.urls[0], TOPIC, 1)
    commit = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": 0}]}
    eventually(
        lambda: call(brokers.url(2), "PUT", "/v1/groups/mail/offsets", commit).status == 204,
        what="a commit",
    )
    for broker in brokers.brokers:
        brokers.kill(broker)
    shutil.rmtree(brokers.data_directory(1) / "__cluster_metadata")
    brokers.launch(1)
    eventually(lambda: call(brokers.url(1), "GET", "/healthz/live"), what="broker 1")
    poll = {"topics": [TOPIC], "generation": 1, "ack": [{"topic": TOPIC, "partition": 0, "offset": 0}]}
    for method, path, body in (
        ("PUT", "/v1/groups/mail/offsets", commit),
        ("POST", "/v1/groups/mail/offsets:reset", {"to": "earliest", "topics": [TOPIC]}),
        ("POST", "/v1/groups/mail/members/m:poll", poll),
    ):
        refused = call(brokers.url(1), method, path, body)
        assert (refused.status, refused.json["retryable"]) == (503, True), (path, refused)
