"""A master and two workers: each row is there once while an executor and a whole worker are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, open_ids, visible, why_no_spark
from tests.helpers.command_line import run
from tests.helpers.real_cluster import create_topic, eventually
from tests.helpers.standalone_spark import StandaloneSpark

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1_800)]

DRIVER = Path(__file__).with_name("standalone_driver.py")
RECORDS = 900
PATIENCE_S = 600.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Its Python workers cannot import ``spark_io``."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    (tmp_path / "sitecustomize.py").write_text("import sys\n\nsys.modules['spark_io'] = None\n")
    worker = tmp_path / "python"
    worker.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    worker.chmod(0o700)
    return {**ENVIRONMENT, "PYSPARK_PYTHON": str(worker)}


@pytest.fixture
def standalone(tmp_path: Path, environment: dict[str, str]) -> Iterator[StandaloneSpark]:
    """Running."""
    import pyspark

    made = StandaloneSpark(Path(pyspark.__file__).parent, tmp_path, environment)
    try:
        made.start()
        yield made
    finally:
        made.stop()


# requirement: A8 D3
def test_every_row_is_there_once_while_executors_and_workers_are_killed(
    brokers: Cluster,
    client: Client,
    standalone: StandaloneSpark,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    for topic in ("raw", "copy", "speculated"):
        create_topic(brokers.urls[0], topic, 2)
    with client.producer("raw") as producer:
        for number in range(RECORDS):
            producer.send(str(number), key=f"k{number}")
    command = [sys.executable, str(DRIVER), standalone.url, ",".join(brokers.urls), str(tmp_path)]
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=log, start_new_session=True
        )

    def seen() -> int:
        assert driver.poll() is None, (tmp_path / "driver.log").read_text(errors="replace")[-3_000:]
        return len(visible(client, "copy"))

    def progress() -> object:
        return seen(), (tmp_path / "driver.log").stat().st_size

    try:
        eventually(lambda: seen() >= 100, what="the second batch", progress=progress)
        before = standalone.executors(0)
        assert before, standalone.log("worker-0")
        standalone.kill_executor(0)
        eventually(lambda: seen() >= 400, what="batches after the death of an executor", progress=progress)
        assert not {*before} & {*standalone.executors(0)}
        standalone.kill_worker(1)
        status = driver.wait(PATIENCE_S)
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert status == 0, (tmp_path / "driver.log").read_text(errors="replace")[-3_000:]
    assert sorted(int(one.value or b"") for one in visible(client, "copy")) == [*range(RECORDS)]
    assert (tmp_path / "attempt-1").exists(), "two attempts were at work at the same time"
    assert sorted(int(one.value or b"") for one in visible(client, "speculated")) == [*range(1_000)]
    assert open_ids(client) == []
    found, told = run(brokers, "archive", "verify", str(tmp_path / "archive"))
    assert found == b"", told
    reach = [one.archived_up_to for one in client.topics.partitions("raw")]
    ends = [max(m.offset for m in visible(client, "raw") if m.partition == number) + 1 for number in (0, 1)]
    assert reach == ends, "brokers know that all of it is archived"
