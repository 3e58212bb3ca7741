"""One Spark session and one cluster for the tests of a file: each takes seconds to start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from raftlog.testing.waits import LIMIT_S
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, SETTINGS, why_no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores that tries a task four times."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    os.environ |= ENVIRONMENT
    made = SparkSession.builder.master("local[2,4]").config(map=SETTINGS).getOrCreate()
    made.sparkContext.setLogLevel("FATAL")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """Three brokers that a file's tests share, each with topics of its own.

    A leader that is late by five seconds is not lost: an election takes an offset, and batches of Spark are
    counted in offsets.
    """
    timing = {"RETENTION_CHECK_INTERVAL_MS": 200, "ELECTION_TICKS": 60, "QUIESCE_TICKS": 60}
    environment = {f"RAFTLOG_BROKER__TIMING__{name}": str(value) for name, value in timing.items()}
    with (
        tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name,
        Cluster(Path(name), environment=environment) as made,
    ):
        yield made


@pytest.fixture
def servers(brokers: Cluster) -> str:
    """The option ``bootstrap.servers``."""
    return ",".join(brokers.urls)


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    """A client of the same brokers."""
    with Client(servers, retry_timeout=f"{LIMIT_S:g}s") as made:
        yield made
