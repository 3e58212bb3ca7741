"""Exactly once while tasks and drivers are killed: the faults that lose or repeat rows in other designs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
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


class Drivers:
    """Drivers of one query, with one checkpoint. All that still run are killed at the end."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._servers = servers
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, when: str, batch: int) -> None:
        """Start one, in a process group of its own, and wait until it is before or after this commit."""
        command = [sys.executable, str(DRIVER), self._servers, str(self._directory), name, when, str(batch)]
        environment = {**os.environ, **ENVIRONMENT}
        with (self._directory / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        eventually(lambda: self._is_there(name), within_s=PATIENCE_S, what=f"{name} is {when} its commit")

    def kill(self, name: str) -> None:
        """``kill -9``."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def ended(self, name: str) -> tuple[int, str]:
        """Let one go on to its end; its status and its output."""
        (self._directory / f"{name}.go").touch()
        status = self._running[name].wait(PATIENCE_S)
        return status, self._output(name)

    def kill_all(self) -> None:
        """At the end of the test."""
        for name in tuple(self._running):
            self.kill(name)

    def _is_there(self, name: str) -> bool:
        assert self._running[name].poll() is None, self._output(name)[-3_000:]
        return (self._directory / name).exists()

    def _output(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")


@pytest.fixture
def drivers(servers: str, tmp_path: Path) -> Iterator[Drivers]:
    """None runs yet."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    made = Drivers(servers, tmp_path)
    yield made
    made.kill_all()


# requirement: A8 D3
@pytest.mark.timeout(900)
def test_every_row_is_there_once_while_tasks_and_drivers_are_killed(
    brokers: Cluster, client: Client, drivers: Drivers, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "raw", 2)
    create_topic(brokers.urls[0], "copy", 2)
    with client.producer("raw") as producer:
        for number in range(RECORDS):
            producer.send(str(number), key=f"k{number}")
    drivers.start("staged", "before", 2)
    assert {path.name for path in tmp_path.iterdir()} >= {"F1", "F2"}, "two tasks were killed"
    assert len(visible(client, "copy")) == 100, "what is staged is not visible"
    drivers.kill("staged")
    drivers.start("zombie", "before", 2)
    drivers.start("committed", "after", 2)
    assert len(visible(client, "copy")) == 200
    drivers.kill("committed")
    drivers.start("last", "before", 3)
    victim = brokers.leader("copy", 0)
    brokers.kill(victim)  # with rows that are staged and not committed
    status, output = drivers.ended("last")
    assert status == 0, output[-3_000:]
    assert sorted(int(one.value) for one in visible(client, "copy")) == [*range(RECORDS)]
    brokers.start(victim)
    status, output = drivers.ended("zombie")
    assert status != 0
    assert "is over, and writes nothing more" in output
    assert sorted(int(one.value) for one in visible(client, "copy")) == [*range(RECORDS)]
    assert open_ids(client) == []
