"""What each ``acks`` means while replicas are missing."""

from __future__ import annotations

from itertools import groupby

import pytest

from chaos.cluster import Cluster
from raftlog.testing.kit import RaftlogCluster
from tests.helpers.real_cluster import (
    RETRYABLE,
    Answer,
    call,
    create_topic,
    eventually,
    partitions_of,
    produce,
    records_path,
)

pytestmark = pytest.mark.e2e


def durability(answer: Answer) -> dict[str, object]:
    """That part of a produce's answer."""
    found = answer.json["durability"]
    assert isinstance(found, dict)
    return found


def stored(url: str, topic: str, value: str, *, query: str = "") -> Answer | None:
    """The answer to an attempt to store a value; None if it has to be repeated."""
    answer = produce(url, topic, [value], query=query)
    assert answer.status == 200 or answer.status in RETRYABLE, answer
    return answer if answer.status == 200 else None


def replicas_of_every(url: str, topic: str, value: str) -> object:
    """On how many replicas a value is that all in sync have to store; None for no answer."""
    answer = stored(url, topic, value, query="?acks=every")
    return answer and durability(answer)["replicas"]


def values_in(cluster: RaftlogCluster, topic: str) -> list[bytes | None]:
    return [message.value for message in cluster.read_all(topic)]


def test_one_of_three_brokers_down(raftlog_cluster: RaftlogCluster) -> None:
    # requirement: RP3, RP5, RP8
    topic = raftlog_cluster.topic(replica_lag_max_ms=1000)
    leader = raftlog_cluster.leader(topic)
    url = raftlog_cluster.url_of(leader)
    eventually(lambda: replicas_of_every(url, topic, "all") == 3, what="a record on three replicas")
    down = next(broker for broker in raftlog_cluster.brokers if broker != leader)
    raftlog_cluster.kill(down)

    quorum = eventually(lambda: stored(url, topic, "quorum"), what="a record that two of three have")
    assert durability(quorum)["committed"] is True

    def is_committed_by_two() -> bool:
        three = produce(url, topic, ["three"], query="?acks=3&timeout=1s")
        assert three.status != 200
        # Not yet, if a disk took longer than the request, or while there is no leader.
        return three.code == "commit_unknown" and three.json["committed"] is True

    eventually(is_committed_by_two, what="a record that two replicas have, in its time")

    def in_sync_without_it() -> bool:
        found = partitions_of(url, topic)[0]["in_sync"]
        return isinstance(found, list) and down not in found

    raftlog_cluster.wait_until(in_sync_without_it, what="a replica that is down leaves in_sync")
    every = eventually(lambda: replicas_of_every(url, topic, "every"), what="an answer without it")
    assert every == 2

    raftlog_cluster.start(down)

    def has_three_replicas() -> bool:
        again = produce(url, topic, ["again"], query="?acks=3&timeout=1s")
        is_stored = again.status == 200 and durability(again)["replicas"] == 3
        return is_stored or raftlog_cluster.leader(topic) != leader

    raftlog_cluster.wait_until(has_three_replicas, what="three replicas again")
    values = [value for value, _ in groupby(values_in(raftlog_cluster, topic))]
    assert values[:4] == [b"all", b"quorum", b"three", b"every"]


def test_idle_partitions_are_quiescent_and_under_replicated_without_a_broker(cluster: Cluster) -> None:
    url = cluster.url(1)
    create_topic(url, "idle", 60, min_insync_replicas=2)
    cluster.kill(3)

    def are_quiescent() -> bool:
        counts = [cluster.metric("raftlog_raft_groups_quiescent", broker=broker) for broker in (1, 2)]
        return min(counts) >= 61  # with the metadata group

    eventually(are_quiescent, what="groups that are quiescent without broker 3")

    def in_sync() -> set[tuple[int, ...]]:
        return {tuple(sorted(item["in_sync"])) for item in partitions_of(url, "idle")}  # type: ignore[call-overload]

    eventually(lambda: in_sync() == {(1, 2)}, what="two replicas in sync of each partition")
    assert eventually(lambda: replicas_of_every(url, "idle", "every"), what="an answer of both") == 2
    cluster.start(3)
    eventually(lambda: in_sync() == {(1, 2, 3)}, what="replicas of broker 3 that are in sync")


def test_two_of_three_brokers_down(raftlog_cluster: RaftlogCluster) -> None:
    # requirement: F6, N4
    topic = raftlog_cluster.topic()
    raftlog_cluster.client.send(topic, "a")
    raftlog_cluster.client.send(topic, "b")
    survivor = raftlog_cluster.leader(topic)
    url = raftlog_cluster.url_of(survivor)
    for broker in set(raftlog_cluster.brokers) - {survivor}:
        raftlog_cluster.kill(broker)
    outcomes = [produce(url, topic, [f"lost-{n}"], query="?timeout=1s") for n in range(3)]
    for outcome in outcomes:
        assert outcome.status in (503, 504), outcome
        assert outcome.json["retryable"] is True
    read = call(url, "GET", records_path(topic) + "?offset=0")
    assert read.status == 200 or read.status in RETRYABLE, read
    if read.status == 200:
        assert [row["value"] for row in read.rows()] == ["a", "b"]
    assert call(url, "GET", "/healthz/live").status == 200
    raftlog_cluster.start()
    raftlog_cluster.client.send(topic, "c")
    values = values_in(raftlog_cluster, topic)
    assert values[:2] == [b"a", b"b"]
    assert values[-1] == b"c"
    assert values.count(b"c") == 1
