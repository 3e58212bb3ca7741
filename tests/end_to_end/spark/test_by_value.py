"""The package is on the driver only, and travels with each task: in a local session, and through Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog.testing.waits import LIMIT_S
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, why_no_spark
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("by_value_driver.py")
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


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
    return {**os.environ, **ENVIRONMENT, "PYSPARK_PYTHON": str(worker)}


@pytest.fixture
def connect(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a server of Spark Connect, which has no ``spark_io``."""
    if find_spec("grpc") is None:
        pytest.skip("no grpc: pip install 'pyspark[connect]'")
    import pyspark

    port = free_ports(1)
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", CONNECT]
    command += ["--master", "local[2,4]", "--conf", "spark.ui.enabled=false", "--driver-memory", "1g"]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
    log = tmp_path / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        eventually(
            lambda: listens(port), what="the server of Spark Connect", progress=lambda: log.stat().st_size
        )
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close()
    except OSError:
        return False
    return True


def drive(
    brokers: Cluster, servers: str, suffix: str, environment: dict[str, str], folder: Path, *remote: str
) -> None:
    """Write twenty numbers and copy them, twice."""
    topics = f"sent-{suffix}", f"copied-{suffix}"
    for topic in topics:
        create_topic(brokers.urls[0], topic, 2)
    command = [sys.executable, str(DRIVER), servers, str(folder), *topics, *remote]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert "sent 40, copied 40" in done.stdout, done.stderr[-3_000:]


# requirement: A8
def test_workers_that_cannot_import_the_package_read_and_write(
    brokers: Cluster, servers: str, environment: dict[str, str], tmp_path: Path
) -> None:
    drive(brokers, servers, "local", environment, tmp_path)


# requirement: A8
def test_a_client_of_spark_connect_reads_and_writes(
    brokers: Cluster, servers: str, environment: dict[str, str], connect: str, tmp_path: Path
) -> None:
    drive(brokers, servers, "connect", environment, tmp_path, connect)
