"""Exactly once while tasks, a driver and a broker are killed. ``test_fault_matrix`` has all faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.faulty_drivers import Drivers
from tests.end_to_end.spark.vocabulary import open_ids, why_no_spark

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

RECORDS = 250


@pytest.fixture
def drivers(brokers: Cluster, client: Client, tmp_path: Path) -> Iterator[Drivers]:
    """None runs yet."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    made = Drivers(brokers, client, tmp_path, "faults")
    yield made
    made.kill_all()


# requirement: A8 D3
@pytest.mark.timeout(900)
def test_every_row_is_there_once_while_tasks_a_driver_and_a_broker_are_killed(
    brokers: Cluster, client: Client, drivers: Drivers, tmp_path: Path
) -> None:
    drivers.fill(RECORDS)
    drivers.start("staged", "before", 2)
    assert {path.name for path in tmp_path.iterdir()} >= {"F1", "F2"}, "two tasks were killed"
    assert len(drivers.copied) == 100, "what is staged is not visible"
    drivers.kill("staged")
    drivers.start("last", "before", 3)
    assert len(drivers.copied) == 200, "the next driver has repeated the batch"
    victim = brokers.leader(drivers.target, 0)
    brokers.kill(victim)  # with rows that are staged and not committed
    status, output = drivers.ended("last")
    assert status == 0, output[-3_000:]
    assert drivers.copied == [*range(RECORDS)]
    brokers.start(victim)
    assert open_ids(client) == []
