"""SIGTERM: leaderships are transferred, clients need no more than a retry, nothing is left to write."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from broker.cluster_files import create_cluster
from chaos.cluster import Cluster
from chaos.ports import free_ports
from chaos.workload import Workload
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import (
    call,
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    produce_surely,
)

pytestmark = pytest.mark.e2e


def ends(url: str, topic: str) -> list[tuple[object, object]]:
    """High watermark and log end of every partition."""
    return [(item["high_watermark"], item["log_end_offset"]) for item in partitions_of(url, topic)]


def knows_all_committed(cluster: Cluster) -> bool:
    """Whether every replica knows that all it holds is committed: the next heartbeat tells followers."""
    return all(
        cluster.metric("raftlog_uncommitted_records", broker=broker) == 0 for broker in cluster.brokers
    )


def test_brokers_are_restarted_one_by_one_and_clients_meet_no_error_that_a_retry_does_not_repair(
    cluster: Cluster,
) -> None:
    create_topic(cluster.urls[0], "orders", 3)
    stops: list[tuple[float, float]] = []  # for the figures that are printed
    with Workload(cluster.urls, "orders", partitions=3, seed=SEED) as load:
        for broker in cluster.brokers:
            load.wait_for_acknowledged(100)
            began = time.monotonic()
            assert cluster.stop(broker) == 0
            stops.append((began, time.monotonic()))
            load.wait_for_acknowledged(100)
            cluster.start(broker)
    history = judge(load)
    silences = [history.longest_silence_s(*window) for window in stops]
    print(f"stops took {[round(end - begin, 2) for begin, end in stops]} s, silences {silences}")


def test_a_clean_stop_leaves_nothing_that_the_next_start_must_write(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 3)
    for partition in range(3):
        produce_surely(cluster.urls, "orders", ["a", "b"], partition=partition)
    eventually(lambda: ends(cluster.urls[0], "orders") == [(2, 2)] * 3, what="two records in each partition")
    eventually(lambda: knows_all_committed(cluster), what="followers that know the commit index")
    assert cluster.stop_all() == [0, 0, 0]
    cluster.start()
    url = cluster.urls[0]
    eventually(lambda: has_leaders(url, "orders", 3), what="leaders")
    assert produce_surely(cluster.urls, "orders", ["c"]) == 2
    eventually(lambda: ends(url, "orders") == [(3, 3), (2, 2), (2, 2)], what="one record more, and no entry")
    told = [line for broker in cluster.brokers for line in cluster.log_text(broker).splitlines()]
    assert told
    assert [line for line in told if "level='error'" in line] == [], "a calm life is no news for operators"


def test_a_leadership_that_is_handed_over_costs_no_offset(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 1)
    produce_surely(cluster.urls, "orders", ["a"])
    leader = cluster.leader("orders", 0)
    assert cluster.stop(leader) == 0
    others = [cluster.url(broker) for broker in cluster.running]
    assert produce_surely(others, "orders", ["b"]) == 1
    assert cluster.leader("orders", 0) != leader


def test_whoever_insists_still_gets_a_clean_stop(cluster: Cluster) -> None:

    def has_ended() -> bool:
        if 2 in cluster.running:
            os.kill(cluster.pid(2), signal.SIGTERM)
        return 2 not in cluster.running

    eventually(has_ended, what="broker 2 ends, although it is asked again and again")
    assert cluster.stop(2) == 0


def test_a_broker_that_waits_for_the_others_to_start_stops_at_once(directory: Path) -> None:
    create_cluster(directory, brokers=3, http_port=free_ports(3))
    cluster = Cluster(directory)
    cluster.launch(1)
    eventually(lambda: "waiting for brokers [2, 3]" in cluster.log_text(1), what="the wait")
    assert cluster.stop(1) == 0
    assert not cluster.broken()


def test_a_broker_whose_terminal_is_closed_stops_as_after_sigterm(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 3)

    def led_by_1() -> list[int]:
        """Partitions that broker 1 leads; it gets one if it opened its replicas too late to lead any."""
        led = [partition for partition in range(3) if cluster.leader("orders", partition) == 1]
        if not led:
            path = "/v1/topics/orders/partitions/0:transfer-leadership"
            call(cluster.url(1), "POST", path, {"to": 1})
        return led

    led = eventually(led_by_1, what="a partition that broker 1 leads")
    os.kill(cluster.pid(1), signal.SIGHUP)
    eventually(lambda: 1 not in cluster.running, what="the end of broker 1")
    assert cluster.stop(1) == 0
    assert "stopping" in cluster.log_text(1)
    assert all(cluster.leader("orders", partition) != 1 for partition in led)
