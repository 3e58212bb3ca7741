"""Exactly once while tasks and drivers are killed: the faults that lose or repeat rows in other designs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, open_ids, visible, why_no_spark
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

DRIVER = Path(__file__).with_name("faulty_driver.py")
PATIENCE_S = 240.0
RECORDS = 350


@contextmanager
def driver(servers: str, directory: Path, when: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, which is killed at the end."""
    command = [sys.executable, str(DRIVER), servers, str(directory), when]
    with (
        (directory / f"{when}.log").open("wb") as log,
        subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log, start_new_session=True
        ) as made,
    ):
        try:
            yield made
        finally:
            with suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)


def killed(servers: str, directory: Path, when: str) -> None:
    """Run a driver until it is before or after the commit of its batch, then ``kill -9``."""
    with driver(servers, directory, when) as process:

        def is_there() -> bool:
            assert process.poll() is None, (directory / f"{when}.log").read_text()[-3_000:]
            return (directory / when).exists()

        eventually(is_there, within_s=PATIENCE_S, what=f"the driver is {when} its commit")


# requirement: A8 D3
@pytest.mark.timeout(600)
def test_every_row_is_there_once_while_tasks_and_drivers_are_killed(
    brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    create_topic(brokers.urls[0], "raw", 2)
    create_topic(brokers.urls[0], "copy", 2)
    with client.producer("raw") as producer:
        for number in range(RECORDS):
            producer.send(str(number), key=f"k{number}")
    killed(servers, tmp_path, "before")
    assert {path.name for path in tmp_path.iterdir()} >= {"F1", "F2"}
    assert len(visible(client, "copy")) == 100, "what is staged is not visible"
    killed(servers, tmp_path, "after")
    assert len(visible(client, "copy")) == 200
    with driver(servers, tmp_path, "never") as process:
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "never.log").read_text()[-3_000:]
    assert sorted(int(one.value) for one in visible(client, "copy")) == [*range(RECORDS)]
    assert open_ids(client) == []
