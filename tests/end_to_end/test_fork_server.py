"""The harness: a broker that is a fork starts and ends as a program does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from broker.cluster_files import create_cluster, settings_path
from chaos.broker_process import StartProcess, as_program
from chaos.cluster import Cluster
from chaos.fork_server import ForkedCommand, as_fork
from chaos.ports import free_ports
from raftlog.__main__ import COMMAND
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def command(directory: Path) -> list[str]:
    create_cluster(directory, brokers=1, http_port=free_ports(1))
    return [*COMMAND, "serve", "--config", str(settings_path(directory, 1))]


@pytest.mark.parametrize("start", [as_fork, as_program])
def test_a_command_has_its_environment_its_output_and_its_status(
    directory: Path, command: list[str], start: StartProcess
) -> None:
    log = directory / "log"
    log.write_text("before\n")
    process = start(command, {**os.environ, "RAFTLOG_BROKER__TIMING__TICK_MS": "nonsense"}, log)
    assert (process.wait(LIMIT_S), process.poll()) == (1, 1)
    assert log.read_text().startswith("before\n")
    assert "RAFTLOG_BROKER__TIMING__TICK_MS" in log.read_text()


@pytest.mark.parametrize("start", [as_fork, as_program])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_command_runs_until_a_signal_ends_it(
    directory: Path, command: list[str], start: StartProcess, number: int, status: int
) -> None:
    log = directory / "log"
    process = start(command, os.environ, log)
    try:
        eventually(lambda: "serving http" in log.read_text(), what="it serves")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        assert os.getpgid(process.pid) == process.pid
        assert os.getsid(process.pid) == os.getsid(0)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == status
        assert not Path(f"/proc/{process.pid}").exists()
    finally:
        process.kill()


@pytest.mark.parametrize("start", [as_fork, as_program])
def test_the_state_of_a_cluster_has_the_stacks_of_its_brokers(
    directory: Path, monkeypatch: pytest.MonkeyPatch, start: StartProcess
) -> None:
    monkeypatch.setattr(Cluster, "start_process", staticmethod(start))
    with Cluster(directory, brokers=1) as cluster:
        wanted = (
            f"broker 1 runs (pid {cluster.pid(1)}), ready",
            "serving http",  # the end of its log
            "Current thread",  # the stacks of its threads
            "Stack for <Task",  # the stacks of its tasks
        )

        def missing() -> list[str]:
            state = cluster.state()  # without the stacks of a broker that is late by two seconds
            return [text for text in wanted if text not in state]

        eventually(lambda: missing() == [], what="a state with the stacks of the broker")
        cluster.kill(1)
        assert "broker 1 ended with status -9" in cluster.state()


def test_a_variable_that_a_fork_would_read_too_late_needs_a_program(
    directory: Path, command: list[str]
) -> None:
    for environment, is_fork in (
        ({}, True),
        ({"LD_PRELOAD": ""}, False),
        ({"RAFTLOG_BROKER__RACK": "a"}, True),
    ):
        process = as_fork(command, {**os.environ, **environment}, directory / "log")
        process.kill()
        assert process.wait(LIMIT_S) == -signal.SIGKILL
        assert isinstance(process, ForkedCommand) == is_fork
