"""What Spark does to a sink when something dies: each row is there once, or an error says why not.

The numbers are those of the table in ``docs/spark.md``. Speculation (F3) and lost executors (F4) need a
cluster, and are in ``test_standalone``; a deleted checkpoint (F12) kills nothing, and is in ``test_sink``.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.faulty_drivers import BATCH_ROWS, Drivers
from tests.end_to_end.spark.vocabulary import open_ids, why_no_spark

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3_600)]

RECORDS = 350


@pytest.fixture
def drivers(
    brokers: Cluster, client: Client, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Drivers]:
    """None runs yet; there are records for four batches."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    made = Drivers(brokers, client, tmp_path, request.node.name.partition("_")[2][:20])
    made.fill(RECORDS)
    yield made
    made.kill_all()


def check_whole(drivers: Drivers, client: Client) -> None:
    """The next driver ends, and each row is there once."""
    status, output = drivers.run("next")
    assert status == 0, output[-3_000:]
    assert drivers.copied == [*range(RECORDS)]
    assert open_ids(client) == []


# requirement: A8 D3
def test_f6_f8_f11_killed_before_and_after_a_commit_beside_a_zombie(
    brokers: Cluster, client: Client, drivers: Drivers, tmp_path: Path
) -> None:
    drivers.start("staged", "before", 2)
    assert {path.name for path in tmp_path.iterdir()} >= {"F1", "F2"}, "two tasks were killed"
    assert len(drivers.copied) == 100, "what is staged is not visible"
    drivers.kill("staged")
    drivers.start("zombie", "before", 2)
    drivers.start("committed", "after", 2)
    assert len(drivers.copied) == 200
    drivers.kill("committed")
    drivers.start("last", "before", 3)
    victim = brokers.leader(drivers.target, 0)
    brokers.kill(victim)  # with rows that are staged and not committed
    status, output = drivers.ended("last")
    assert status == 0, output[-3_000:]
    assert drivers.copied == [*range(RECORDS)]
    brokers.start(victim)
    status, output = drivers.ended("zombie")
    assert status != 0
    assert "can no longer write to" in output
    assert drivers.copied == [*range(RECORDS)]
    assert open_ids(client) == []


# requirement: A8 D3
def test_f5_all_attempts_of_a_task_fail(client: Client, drivers: Drivers) -> None:
    status, output = drivers.run("failing", "fails", 2)
    assert status != 0
    assert "this task fails" in output
    assert len(drivers.copied) == BATCH_ROWS, "nothing of the batch is visible"
    assert open_ids(client) == [], "its abort has ended what its tasks have staged"
    check_whole(drivers, client)


# requirement: A8 D3
def test_f7_the_driver_dies_inside_its_commit(client: Client, drivers: Drivers) -> None:
    for number, batch in enumerate((1, 2, 3)):
        status, output = drivers.run(f"inside-{number}", "inside", batch)
        assert status == -signal.SIGKILL, output[-3_000:]
        assert len(drivers.copied) % BATCH_ROWS == 0, "batches are whole"
    check_whole(drivers, client)


# requirement: A8 D3
def test_f9_an_abort_follows_a_commit_that_has_raised(client: Client, drivers: Drivers) -> None:
    status, output = drivers.run("unanswered", "unanswered", 2)
    assert status != 0
    assert "nobody has answered" in output
    assert len(drivers.copied) == 2 * BATCH_ROWS, "the batch is committed, and stays so"
    check_whole(drivers, client)


# requirement: A8 D3
def test_f10_the_query_is_stopped_in_the_middle_of_a_batch(client: Client, drivers: Drivers) -> None:
    status, output = drivers.run("stopped", "stops", 2)
    assert status == 0, output[-3_000:]
    assert len(drivers.copied) == BATCH_ROWS
    check_whole(drivers, client)


# requirement: A8 D3
def test_f13_a_checkpoint_from_a_copy_is_refused(client: Client, drivers: Drivers, tmp_path: Path) -> None:
    drivers.start("copied", "after", 2)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    status, output = drivers.ended("copied")
    assert status == 0, output[-3_000:]
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    status, output = drivers.run("restored")
    assert status != 0
    assert "the checkpoint was restored from a copy" in output
    assert drivers.copied == [*range(RECORDS)]
    assert open_ids(client) == []


# requirement: A8 D3
def test_f14_records_that_are_deleted_before_a_batch_is_repeated_are_an_error(
    client: Client, drivers: Drivers
) -> None:
    drivers.start("staged", "before", 2)
    drivers.kill("staged")
    for partition in (0, 1):
        client.partitions.delete_before(drivers.source, partition, 70)
    status, output = drivers.run("next")
    assert status != 0
    assert "are deleted, the log begins at 70" in output
    assert len(drivers.copied) == BATCH_ROWS
