"""What each ``acks`` means while replicas are missing."""

from __future__ import annotations

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import (
    RETRYABLE,
    call,
    create_topic,
    eventually,
    partitions_of,
    produce,
    produce_surely,
    read_all,
    records_path,
)

pytestmark = pytest.mark.e2e


def durability(answer_json: dict[str, object]) -> dict[str, object]:
    """That part of a produce's answer."""
    found = answer_json["durability"]
    assert isinstance(found, dict)
    return found


def test_one_of_three_brokers_down(cluster: Cluster) -> None:
    # requirement: RP3, RP5, RP8
    create_topic(cluster.urls[0], "orders", 1, replica_lag_max_ms=1000)
    leader = cluster.leader("orders", 0)
    url = cluster.url(leader)
    assert durability(produce(url, "orders", ["all"], query="?acks=every").json)["replicas"] == 3
    down = next(broker for broker in cluster.brokers if broker != leader)
    cluster.kill(down)

    quorum = produce(url, "orders", ["quorum"])
    assert quorum.status == 200, quorum
    assert durability(quorum.json)["committed"] is True

    three = produce(url, "orders", ["three"], query="?acks=3&timeout=1s")
    assert (three.status, three.code) == (504, "replication_timeout")
    assert three.json["committed"] is True

    def in_sync_without_it() -> bool:
        found = partitions_of(url, "orders")[0]["in_sync"]
        return isinstance(found, list) and down not in found

    eventually(in_sync_without_it, within_s=20, what="a replica that is down leaves in_sync")
    every = produce(url, "orders", ["every"], query="?acks=every")
    assert every.status == 200, every
    assert durability(every.json)["replicas"] == 2

    cluster.start(down)
    eventually(
        lambda: (
            durability(produce(url, "orders", ["again"], query="?acks=3&timeout=1s").json)["replicas"] == 3
            if cluster.leader("orders", 0) == leader
            else True
        ),
        within_s=30,
        what="three replicas again",
    )
    values = [value for _, value in read_all(url, "orders")]
    assert values[:4] == ["all", "quorum", "three", "every"]


def test_two_of_three_brokers_down(cluster: Cluster) -> None:
    # requirement: F6, N4
    create_topic(cluster.urls[0], "orders", 1)
    produce_surely(cluster.urls, "orders", ["a", "b"])
    survivor = cluster.leader("orders", 0)
    url = cluster.url(survivor)
    down = [broker for broker in cluster.brokers if broker != survivor]
    for broker in down:
        cluster.kill(broker)
    outcomes = [produce(url, "orders", [f"lost-{n}"], query="?timeout=1s") for n in range(3)]
    for outcome in outcomes:
        assert outcome.status in (503, 504), outcome
        assert outcome.json["retryable"] is True
    read = call(url, "GET", records_path("orders") + "?offset=0")
    assert read.status == 200 or read.status in RETRYABLE, read
    if read.status == 200:
        assert [row["value"] for row in read.rows()] == ["a", "b"]
    assert call(url, "GET", "/healthz/live").status == 200
    cluster.start(*down, wait_s=60)
    produce_surely(cluster.urls, "orders", ["c"])
    values = [value for _, value in read_all(url, "orders")]
    assert values[:2] == ["a", "b"]
    assert values[-1] == "c"
    assert values.count("c") == 1
