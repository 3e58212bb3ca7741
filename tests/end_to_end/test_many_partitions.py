"""Thousands of partitions on a machine that has other work to do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 3_000
BUSY_PROCESSES = 2  # as many as the smallest machine of CI has cores
SETTLED_WITHIN_S = 300


@contextlib.contextmanager
def other_work() -> Iterator[None]:
    """Processes that take all CPU they can get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROCESSES)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_thousands_of_partitions_become_quiescent_although_other_processes_take_the_cpu(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path) as cluster, other_work():
        began = time.monotonic()
        topic = {"name": "idle", "partitions": PARTITIONS, "replication_factor": 3}
        made = settled(cluster.urls[0], "POST", "/v1/topics", topic)
        assert made.status in (201, 409), made  # 409: the answer to an earlier attempt was not known
        quiescent: list[float] = []
        while time.monotonic() - began < SETTLED_WITHIN_S:
            quiescent = [
                cluster.metric("raftlog_raft_groups_quiescent", broker=broker) for broker in cluster.running
            ]
            if min(quiescent) >= PARTITIONS:
                break
            time.sleep(1)  # a scrape is work for the broker, too
        print(f"{PARTITIONS} partitions were quiescent after {time.monotonic() - began:.0f} s")
        assert min(quiescent) >= PARTITIONS
