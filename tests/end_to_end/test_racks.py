"""Real brokers in three racks: consumers read from the replica in theirs, and go on when it burns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.helpers.command_line import run
from tests.helpers.real_cluster import call, create_topic, eventually, records_path

RACKS = {1: "a", 2: "b", 3: "c"}
COUNT = 300


@pytest.fixture
def three(directory: Path) -> Iterator[Cluster]:
    """Three brokers, each in a rack of its own."""
    cluster = Cluster(directory, brokers=3)
    for broker, rack in RACKS.items():
        cluster.add_environment(broker, {"RAFTLOG_BROKER__RACK": rack})
    with cluster:
        yield cluster


# requirement: RP10, RP11
@pytest.mark.e2e
def test_a_consumer_reads_in_its_rack_and_goes_on_when_that_burns(three: Cluster) -> None:
    create_topic(three.urls[0], "orders")
    leader = three.leader("orders", 0)
    near = next(broker for broker in RACKS if broker != leader)
    with (
        Client(three.urls, rack=RACKS[near], max_staleness="2s") as client,
        client.consumer(None, assign=[("orders", 0)]) as consumer,
    ):
        with client.producer("orders") as producer:
            for number in range(COUNT):
                producer.send(f"{number}", partition=0)
        messages = iter(consumer)
        seen = [next(messages).offset for _ in range(COUNT)]
        path = f"{records_path('orders')}?offset=0&read_from=closest&min_offset={COUNT}"
        for asked in (path, f"{path}&route=none"):  # on a busy machine the replica may have to catch up first
            eventually(partial(_serves, three, near, asked), what="the replica serves")
        three.kill(near)
        with client.producer("orders") as producer:
            for number in range(COUNT):
                producer.send(f"{COUNT + number}", partition=0)
        seen += [next(messages).offset for _ in range(COUNT)]
        assert seen == list(range(2 * COUNT))
        three.start(near)
        eventually(
            partial(_serves, three, near, f"{path}&route=none"),
            what="its replica serves again",
        )
    shown, _ = run(three, "broker", "list")
    assert [line.split()[-1] for line in shown.decode().splitlines()[1:]] == [*RACKS.values()]


def _serves(cluster: Cluster, broker: int, path: str) -> bool:
    answer = call(cluster.urls[broker - 1], "GET", path)
    return (answer.status, answer.headers.get("raftlog-served-by")) == (200, str(broker))
