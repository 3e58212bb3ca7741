"""A cluster grows by a replica elsewhere and shrinks by a broker, under load, with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from chaos.cluster import Cluster
from chaos.workload import Workload
from raftlog import Client
from raftlog.errors import Conflict, RaftlogError
from raftlog.testing.waits import LIMIT_S
from tests.helpers.command_line import health, run
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import create_topic, eventually, settled

pytestmark = pytest.mark.e2e

Rows = list[set[int]]
Found = TypeVar("Found")


@pytest.fixture
def four(directory: Path) -> Iterator[Cluster]:
    """Four brokers of the test's own."""
    with Cluster(directory, brokers=4) as brokers:
        yield brokers


def rows(client: Client, topic: str) -> Rows:
    """The brokers of each partition whose move has ended and whose replicas are all in sync."""
    try:
        return [
            {*one.replicas} if one.reassignment is None and {*one.in_sync} == {*one.replicas} else set()
            for one in client.topics.partitions(topic)
        ]
    except RaftlogError:
        return []


def surely(attempt: Callable[[], Found]) -> Found:
    """What an attempt returns that is not refused; the controller or the leader may have just been lost."""

    def found() -> Found | None:
        try:
            return attempt()
        except RaftlogError as error:
            print(f"refused: {error!r}")
            return None

    return eventually(found, what="an attempt that is not refused")


def leads(client: Client, partition: int, broker: int) -> bool:
    """Whether the broker leads the partition of ``orders`` once that is asked for."""
    try:
        return client.partitions.transfer_leadership("orders", partition, to=broker).leader == broker
    except RaftlogError:
        return False


def placed(client: Client, topic: str, *wanted: tuple[int, ...]) -> None:
    """Return once these brokers hold the partitions of a topic."""
    for partition, brokers in enumerate(wanted):
        surely(partial(client.partitions.set_replicas, topic, partition, brokers, wait=f"{LIMIT_S:g}s"))
    eventually(lambda: rows(client, topic) == [{*brokers} for brokers in wanted], what=f"{wanted}")


def logs(cluster: Cluster, broker: int, topic: str) -> list[Path]:
    """The folders of the replicas that a broker has of a topic."""
    return list(cluster.data_directory(broker).glob(f"{topic}-*/Partition-*"))


# requirement: F2
# requirement: F3
def test_a_replica_moves_to_broker_4_and_back_when_broker_4_is_decommissioned(four: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(four.urls[0], "orders", 3)
    with Client(four.bootstrap) as client:
        placed(client, "orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        with Workload(four.urls, "orders", partitions=3, seed=SEED) as load:
            load.wait_for_acknowledged(100)
            four.pause(4)  # so that it cannot have caught up when the answer comes
            begun = surely(lambda: client.partitions.set_replicas("orders", 2, (2, 3, 4)))
            four.resume(4)
            assert {*begun.replicas} == {1, 2, 3}, "broker 1 holds its copy until broker 4 has caught up"
            assert begun.reassignment is not None
            assert {*begun.reassignment.target} == {2, 3, 4}
            eventually(lambda: rows(client, "orders")[2:] == [{2, 3, 4}], what="the replicas of F2")
            eventually(lambda: len(logs(four, 1, "orders")) == 2, what="no copy left on broker 1")
            load.wait_for_acknowledged(100)

            left = json.loads(
                run(four, "broker", "decommission", "4", "--wait", f"{LIMIT_S:g}s", "-o", "json")[0]
            )
            assert (left["decommissioned"], left["draining"], left["replicas"]) == (True, True, 0)
            eventually(lambda: rows(client, "orders") == [{1, 2, 3}] * 3, what="the replicas before F2")
            eventually(lambda: not logs(four, 4, "orders"), what="no copy left on broker 4")
            load.wait_for_acknowledged(100)
            four.stop(4)
            load.wait_for_acknowledged(100)
        judge(load)
        eventually(lambda: not client.brokers.describe(4).alive, what="broker 4 is fenced")

        def is_healthy() -> bool:
            """Whether a broker that was removed is no problem."""
            code, found = health(four)
            return code == 0 and found["problems"] == []

        eventually(is_healthy, what="a cluster without problems")

        four.start(4)
        assert client.brokers.describe(4).decommissioned, "it is not used again by being started"
        create_topic(four.urls[0], "later", 4)
        assert all(4 not in row for row in rows(client, "later"))
        assert not client.brokers.recommission(4).draining
        eventually(lambda: client.brokers.describe(4).alive, what="broker 4 takes replicas")
        create_topic(four.urls[0], "latest", 4)
        eventually(lambda: any(4 in row for row in rows(client, "latest")), what="replicas on broker 4")


def test_a_broker_that_dies_while_it_is_decommissioned_gives_up_its_replicas_at_once(four: Cluster) -> None:
    create_topic(four.urls[0], "orders", 6)
    with Client(four.bootstrap) as client:
        placed(client, "orders", *[(2, 3, 4)] * 6)
        with Workload(four.urls, "orders", partitions=6, seed=SEED) as load:
            load.wait_for_acknowledged(100)
            client.brokers.decommission(4)
            four.kill(4)
            eventually(lambda: rows(client, "orders") == [{1, 2, 3}] * 6, what="no replica on broker 4")
        judge(load)
        again = client.brokers.decommission(4, wait=f"{LIMIT_S:g}s")
        assert again.replicas == 0, "a second request changes nothing"


def test_a_decommission_that_cannot_end_is_refused_and_one_that_lasts_can_be_taken_back(
    four: Cluster,
) -> None:
    create_topic(four.urls[0], "orders", 2)
    with Client(four.bootstrap) as client:
        placed(client, "orders", (2, 3, 4), (2, 3, 4))
        client.brokers.decommission(1)
        with pytest.raises(Conflict, match="'orders' has replication factor 3, but without broker 4 only 2"):
            client.brokers.decommission(4)
        assert not client.brokers.describe(4).draining
        assert settled(four.urls[0], "POST", "/v1/brokers/9:decommission").status == 404
        client.brokers.recommission(1)
        client.brokers.decommission(4)
        client.brokers.recommission(4)
        eventually(lambda: all(rows(client, "orders")), what="no move under way")
        eventually(
            lambda: client.brokers.describe(4).replicas == sum(4 in row for row in rows(client, "orders")),
            what="a broker that is used as before",
        )


def test_a_drained_broker_leads_nothing_and_keeps_its_replicas(four: Cluster) -> None:
    create_topic(four.urls[0], "orders", 4)
    with Client(four.bootstrap) as client:
        placed(client, "orders", *[(4, 2, 3)] * 4)
        for partition in range(4):
            eventually(partial(leads, client, partition, 4), what=f"broker 4 as the leader of {partition}")
        with Workload(four.urls, "orders", partitions=4, seed=SEED) as load:
            load.wait_for_acknowledged(50)
            assert client.brokers.drain(4).replicas == 4
            eventually(
                lambda: all(one.leader in (2, 3) for one in client.topics.partitions("orders")),
                what="other leaders",
            )
            load.wait_for_acknowledged(50)
        judge(load)
        eventually(lambda: rows(client, "orders") == [{2, 3, 4}] * 4, what="the same replicas, in sync")
        client.brokers.recommission(4)
        eventually(lambda: leads(client, 0, 4), what="broker 4 as a leader again")
