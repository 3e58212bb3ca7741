"""Brokers are killed under load, again and again, and the history is judged.

Each round kills a broker with ``kill -9``, every other time the leader of a partition, and starts it
again; every seed is printed.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time

import pytest

from chaos.checkers import check, verdict
from chaos.cluster import Cluster
from chaos.registers import Verdict
from chaos.workload import Shape, Workload, WorkloadFailed
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import create_topic, eventually, has_leaders, partitions_of

PARTITIONS = 3


def kill_rounds(cluster: Cluster, rounds: int, shape: Shape) -> tuple[Workload, list[float]]:
    """The load, and for each round the time that clients of some partition went without an answer."""
    rng = random.Random(SEED)
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    windows: list[tuple[float, float]] = []
    with Workload(cluster.urls, "orders", partitions=PARTITIONS, seed=SEED, shape=shape) as load:
        load.wait_for_acknowledged(100)
        for _ in range(rounds):
            victim = rng.choice([*cluster.brokers, *(cluster.leader("orders", n) for n in range(PARTITIONS))])
            began = time.monotonic()
            cluster.kill(victim)
            load.wait_for_acknowledged(60)
            cluster.start(victim)
            load.wait_for_acknowledged(60)
            windows.append((began, time.monotonic()))
    silences = [load.history.longest_silence_s(*window) for window in windows]
    ordered = sorted(silences)
    print(
        f"{rounds} kills, {load.acknowledged} values acknowledged; without an acknowledgement: "
        f"p50 {statistics.median(ordered):.3f} s, p99 {ordered[int(0.99 * (rounds - 1))]:.3f} s, "
        f"max {ordered[-1]:.3f} s; refusals {dict(load.refusals)}"
    )
    return load, silences


@pytest.mark.e2e
def test_nothing_acknowledged_is_lost_when_brokers_are_killed_under_load(cluster: Cluster) -> None:
    # requirement: N4
    load, silences = kill_rounds(cluster, 6, Shape())
    judge(load)
    assert len(silences) == 6, "clients of every partition got responses again after each kill"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_lose_nothing_and_producers_continue_within_two_seconds(cluster: Cluster) -> None:
    # requirement: N4
    load, silences = kill_rounds(cluster, 200, Shape(pause_ms_max=60))
    judge(load)
    assert statistics.median(silences) < 2, silences
    assert sum(silence >= 2 for silence in silences) <= 2, silences


@pytest.mark.e2e
def test_all_brokers_killed_at_once_come_back_with_everything_acknowledged(cluster: Cluster) -> None:
    # requirement: N3, N4, ST2
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    print(f"seed {SEED} (CHAOS_SEED)")
    with Workload(cluster.urls, "orders", partitions=PARTITIONS, seed=SEED) as load:
        for _ in range(2):
            load.wait_for_acknowledged(300)
            for broker in cluster.brokers:
                cluster.kill(broker)
            cluster.start()
            load.wait_for_acknowledged(100)
    judge(load)


@pytest.mark.e2e
def test_a_paused_leader_that_wakes_up_neither_loses_nor_shows_anything_stale(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    print(f"seed {SEED} (CHAOS_SEED)")
    with Workload(cluster.urls, "orders", partitions=PARTITIONS, seed=SEED) as load:
        for partition in range(PARTITIONS):
            load.wait_for_acknowledged(50)
            paused = cluster.leader("orders", partition)
            cluster.pause(paused)
            awake = next(
                url for broker, url in zip(cluster.brokers, cluster.urls, strict=True) if broker != paused
            )
            eventually(
                lambda url=awake, partition=partition, paused=paused: (
                    partitions_of(url, "orders")[partition]["leader"] not in (None, paused)
                ),
                what="another leader",
            )
            load.wait_for_acknowledged(30)
            cluster.resume(paused)
            load.wait_for_acknowledged(100)
    judge(load)


@pytest.mark.e2e
def test_every_partition_has_a_leader_after_the_whole_cluster_was_killed(cluster: Cluster) -> None:
    # requirement: F6
    create_topic(cluster.urls[0], "orders", 12)
    for broker in cluster.brokers:
        cluster.kill(broker)
    cluster.start()
    for url in cluster.urls:
        eventually(lambda url=url: has_leaders(url, "orders", 12), what="leaders everywhere")


@pytest.mark.e2e
def test_a_load_that_is_broken_off_has_read_nothing_for_good_and_convicts_nobody(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    load = Workload(cluster.urls, "orders", partitions=PARTITIONS, seed=SEED)

    def break_off() -> None:
        with load:
            load.wait_for_acknowledged(300)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert not load.history.has_final_read
    assert verdict(check(load.history)) is not Verdict.INVALID


def lose_records_under_load(cluster: Cluster) -> None:
    """What every other test here must never see."""
    # The expiry of a wait convicts, too: what was read is gone, or its replicas wait for one that has it.
    shape = Shape(final_read_s=3, send_s=3)
    with Workload(cluster.urls, "orders", partitions=PARTITIONS, seed=SEED, shape=shape) as load:
        load.wait_for_acknowledged(300)
        for broker in cluster.brokers:
            cluster.kill(broker)
        for broker in cluster.brokers:
            for log in cluster.data_directory(broker).glob("orders-*"):
                shutil.rmtree(log)
        cluster.start()
        load.wait_for_acknowledged(300, within_s=10)
    assert check(load.history) == []


@pytest.mark.e2e
def test_the_harness_notices_when_acknowledged_records_are_taken_away(cluster: Cluster) -> None:
    """The control: a cluster that loses data must be convicted, or the other tests mean nothing."""
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    with pytest.raises((WorkloadFailed, AssertionError)) as found:
        lose_records_under_load(cluster)
    print(f"convicted: {str(found.value)[:300]}")
