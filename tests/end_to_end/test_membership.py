"""Partitions and leaders move under load on real brokers, and a lost majority is given up on purpose."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from chaos.cluster import Cluster
from chaos.workload import Workload
from raftlog import Client, Conflict
from raftlog.client.blocking import Partitions
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S
from raftlog.wire.bodies import PartitionDescription
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import (
    call,
    create_topic,
    eventually,
    may_be_repeated,
    partitions_of,
    produce_surely,
    values_of,
)

UNSAFE_RECOVER = "/v1/topics/orders/partitions/0:unsafe-recover"


@pytest.fixture
def five(directory: Path) -> Iterator[Cluster]:
    """Five brokers of the test's own."""
    with Cluster(directory, brokers=5) as brokers:
        yield brokers


def moved(replicas: Partitions, *brokers: int) -> PartitionDescription:
    """The partition once exactly these brokers hold it; whoever asks while brokers die asks again."""

    def attempt() -> PartitionDescription | None:
        try:
            shown = replicas.set_replicas("orders", 0, brokers, wait=f"{LIMIT_S:g}s")
        except RaftlogError:
            return None
        return shown if shown.reassignment is None and set(shown.replicas) == set(brokers) else None

    return eventually(attempt, what=f"replicas on {brokers}")


def leads(replicas: Partitions, broker: int) -> bool:
    """Whether the broker leads the partition once that is asked for."""
    try:
        return replicas.transfer_leadership("orders", 0, to=broker).leader == broker
    except RaftlogError:
        return False


def holds(cluster: Cluster, broker: int) -> bool:
    """Whether a broker has files of the partition."""
    return any(cluster.data_directory(broker).glob("orders-*/Partition-0"))


# requirement: F1, F2, F3
@pytest.mark.e2e
def test_replicas_and_leaders_move_under_load_and_nothing_is_lost_or_doubled(five: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(five.urls[0], "orders")
    with Client(five.bootstrap) as client, Workload(five.urls, "orders", partitions=1, seed=SEED) as load:
        load.wait_for_acknowledged(100)
        for row in ((1, 2, 3), (2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 5), (3, 4, 5)):
            assert moved(client.partitions, *row).replicas == [*row]
            load.wait_for_acknowledged(30)
        for to in (3, 4, 5, 3, 4, 5):
            eventually(partial(leads, client.partitions, to), what=f"broker {to} as the leader")
        load.wait_for_acknowledged(30)
        # The leader dies in the midst of a change.
        victim = five.leader("orders", 0)
        with contextlib.suppress(RaftlogError):  # it may be lost before, and the change with it
            client.partitions.set_replicas("orders", 0, [victim, 1, 2])
        five.kill(victim)
        others = [broker for broker in (3, 4, 5) if broker != victim]
        moved(client.partitions, 1, 2, others[0])
        load.wait_for_acknowledged(30)
        five.start(victim)
        eventually(
            lambda: [broker for broker in five.brokers if holds(five, broker)] == sorted((1, 2, others[0])),
            what="files on those that hold the partition, and nowhere else",
        )
        load.wait_for_acknowledged(30)
    judge(load)


# requirement: F6
@pytest.mark.e2e
def test_a_partition_is_recovered_from_its_last_replica_and_old_ones_come_back_empty(
    five: Cluster, directory: Path
) -> None:
    create_topic(five.urls[0], "orders")
    with Client(five.bootstrap) as client:
        moved(client.partitions, 1, 2, 3)
        produce_surely(five.urls, "orders", ["a", "b"])
        saved = directory / "saved"
        for broker in (2, 3):
            five.kill(broker)
            shutil.copytree(five.data_directory(broker), saved / str(broker))
            shutil.rmtree(five.data_directory(broker))
        url = five.url(5)
        phrase = "recover orders/0 from broker 1 without brokers 2, 3"

        def refused() -> bool:
            """Whether the words are asked for, once broker 1 has noticed that it leads nothing."""
            answer = call(url, "POST", UNSAFE_RECOVER, {})
            assert answer.code == "conflict" or may_be_repeated(answer), answer
            return answer.json.get("confirm") == phrase

        eventually(refused, what="a recovery that is to be confirmed")

        def recovered() -> object:
            """The records of it. The controller wants to have missed the dead for a while."""
            call(url, "POST", UNSAFE_RECOVER, {"confirm": phrase})
            return [
                done for one in partitions_of(url, "orders") for done in [one["unsafe_recoveries"]] if done
            ]

        (record,) = cast("list[list[dict[str, object]]]", eventually(recovered, what="a recovery"))
        produce_surely([five.url(1), url], "orders", ["c"])
        assert (record[0]["survivor"], record[0]["lost"]) == (1, [2, 3])
        with pytest.raises(Conflict):
            client.partitions.unsafe_recover("orders", 0, confirm=str(phrase))
        for broker in (2, 3):  # their disks are found again, with logs of what is no more
            shutil.copytree(saved / str(broker), five.data_directory(broker))
            five.start(broker)
        assert values_of(five, "orders") == ["a", "b", "c"]
        moved(client.partitions, 1, 2, 3)
        eventually(lambda: leads(client.partitions, 2), what="broker 2 as the leader")
        produce_surely(five.urls, "orders", ["d"])
        assert values_of(five, "orders") == ["a", "b", "c", "d"]
