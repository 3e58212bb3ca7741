"""Fixtures: clusters of real broker processes, each in a directory that goes with it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.fork_server import as_fork
from raftlog.node.group_host import TICK_MS
from tests.helpers.pauses import with_pauses

HERE = Path(__file__).parent
PATIENT = {
    "RAFTLOG_BROKER__TIMING__TICK_MS": str(2 * TICK_MS),
    "RAFTLOG_BROKER__TIMING__BROKER_TIMEOUT_MS": "10000",
}
PAUSES_MS = float(os.environ.get("PAUSES_MS", "0"))  # brokers are paused at random, up to so long at a time

TEST_S = (
    900  # several waits of a test may reach their limit, and the last one prints what the others waited for
)


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without a limit of its own has this one, which is the last net: waits have their own limit."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))


@pytest.fixture(scope="session", autouse=True)
def many_brokers() -> Iterator[None]:
    """Twenty brokers share two cores, with other work beside.

    Brokers without disk faults or commands of their own are forks: starts were half of the CPU. On such a
    machine a leader that is late by half a second is not lost, and a broker that is late by 3 s not dead.
    """
    with pytest.MonkeyPatch.context() as patched:
        start = with_pauses(as_fork, PAUSES_MS) if PAUSES_MS else as_fork
        patched.setattr(Cluster, "start_process", staticmethod(start))
        patched.setattr(Cluster, "variables", PATIENT)
        yield


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that is gone after the test: data of brokers is not kept."""
    with tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name:
        yield Path(name)


@pytest.fixture
def cluster(directory: Path) -> Iterator[Cluster]:
    """Three brokers of the test's own, to be broken."""
    with Cluster(directory) as brokers:
        yield brokers


@pytest.fixture(scope="module")
def unbroken() -> Iterator[Cluster]:
    """Three brokers that a module's tests share: nobody breaks them, everybody uses topics of their own."""
    with tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name, Cluster(Path(name)) as brokers:
        yield brokers
