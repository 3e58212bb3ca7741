"""A broker whose standard error is a pipe that nobody reads goes on, and says how many lines it left out."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from broker.cluster_files import create_cluster
from chaos.ports import free_ports
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import call, create_topic, eventually, produce_surely

pytestmark = pytest.mark.e2e

PIPE_BYTES: Final = 4_096
LINES_MAX: Final = 20
PROGRAM: Final = f"""
from functools import partial
from raftlog.__main__ import main, use_our_packages
use_our_packages()
from broker.process import logs
logs.LogQueue = partial(logs.LogQueue, lines_max={LINES_MAX})
main()
"""
DROPPED: Final = re.compile(r"^raftlog_log_lines_dropped_total (\d+)", re.MULTILINE)
TOLD: Final = re.compile(r"(\d+) log lines were dropped here")


def is_ready(url: str) -> bool:
    """Whether the broker takes requests."""
    try:
        return call(url, "GET", "/healthz/ready").status == 200
    except OSError:
        return False


def dropped(url: str) -> int:
    """The lines that were left out so far, by the metric."""
    found = DROPPED.search(call(url, "GET", "/metrics").body.decode())
    assert found is not None
    return int(float(found[1]))


def administer(url: str, topic: str) -> None:
    """What the broker writes lines about."""
    create_topic(url, topic, replication_factor=1)
    produce_surely([url], topic, ["x"])
    assert call(url, "DELETE", f"/v1/topics/{topic}").status in (200, 204)


def test_a_broker_serves_while_nobody_reads_its_log(directory: Path) -> None:
    port = free_ports(1)
    create_cluster(directory, brokers=1, http_port=port)
    url, config = f"http://127.0.0.1:{port}", directory / "broker-1" / "raftlog.toml"
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    command = [sys.executable, "-P", "-c", PROGRAM, "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=write_end) as broker:
        try:
            os.close(write_end)
            eventually(lambda: is_ready(url), what="a broker that is ready")
            number, deadline = 0, time.monotonic() + 2 * LIMIT_S
            while dropped(url) < LINES_MAX:
                assert time.monotonic() < deadline, f"{number} topics, and no line was left out"
                administer(url, f"topic-{number}")
                number += 1
            assert call(url, "GET", "/healthz/live").status == 200
            os.set_blocking(read_end, False)
            log = b""

            def told() -> list[str]:
                nonlocal log, number
                try:
                    log += os.read(read_end, 1 << 20)
                except BlockingIOError:
                    administer(url, f"topic-{number}")
                    number += 1
                return TOLD.findall(log.decode(errors="replace"))

            assert 0 < int(eventually(told, what="a line about lines")[0]) <= dropped(url)
            os.set_blocking(read_end, True)
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(LIMIT_S) == 0
        finally:
            broker.kill()
            os.close(read_end)
