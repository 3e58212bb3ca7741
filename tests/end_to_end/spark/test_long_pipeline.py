"""Five million records through windows into a topic, while drivers and brokers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import CalledProcessError

import msgspec
import pytest

from chaos.cluster import Cluster
from chaos.demo import flights
from raftlog import Client
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, open_ids, why_no_spark
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3_600)]

DRIVER = Path(__file__).with_name("long_pipeline_driver.py")
RECORDS = 5_000_000
PARTITIONS = 4
STEP_MS = 20  # between two records: 100,000 seconds in all, 334 windows of five minutes
PATIENCE_S = 900.0
DRIVER_KILLS = (4, 9, 14)  # once this many batches are committed
BROKER_KILLS = (6, 12)


class Carrier(msgspec.Struct):
    """The part of a flight that is needed."""

    carrier: str


@pytest.fixture(scope="module")
def carriers() -> list[str]:
    """Of all flights, in order."""
    try:
        archive = flights.fetch(Path(".cache"))
    except CalledProcessError as error:
        pytest.skip(f"the flights cannot be fetched: {error}")
    return [msgspec.json.decode(value, type=Carrier).carrier for _, value in flights.read(archive)]


def fill(client: Client, carriers: list[str]) -> None:
    """The flights over and over, a record each 20 ms of event time, in turns to all partitions."""
    with client.producer("raw", preset="throughput", compression="zstd") as producer:
        for number in range(RECORDS):
            producer.send(
                str(number % 1_009),
                key=carriers[number % len(carriers)],
                partition=number % PARTITIONS,
                timestamp=1_700_000_000_000 + number * STEP_MS,
            )


class Driver:
    """The drivers of one query, one after the other."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._command = [sys.executable, str(DRIVER), servers, str(directory / "checkpoint")]
        self._commits = directory / "checkpoint" / "commits"
        self._log = directory / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start one, with the checkpoint of the one before."""
        environment = {**os.environ, **ENVIRONMENT}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def batches(self) -> int:
        """How many are committed."""
        if not self._commits.exists():
            return 0
        return sum(path.name.isdigit() for path in self._commits.iterdir())

    def until(self, batches: int) -> None:
        """Wait until so many batches are committed."""
        eventually(
            lambda: self._is_at(batches),
            what=f"batch {batches}",
            progress=lambda: (
                self.batches,
                self._log.stat().st_size,
                len([*self._commits.parent.rglob("*")]),
            ),
        )

    def kill(self) -> None:
        """``kill -9``, in the middle of a batch."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> int:
        """Its status at its end."""
        assert self._process is not None
        return self._process.wait(PATIENCE_S)

    @property
    def output(self) -> str:
        """The end of it."""
        return self._log.read_text(errors="replace")[-3_000:] if self._log.exists() else ""

    def _is_at(self, batches: int) -> bool:
        assert self._process is not None
        assert self._process.poll() is None or self.batches >= batches, self.output
        return self.batches >= batches


# requirement: A8 D3
def test_five_million_records_are_those_of_one_batch(
    brokers: Cluster, servers: str, client: Client, carriers: list[str], tmp_path: Path
) -> None:
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    create_topic(brokers.urls[0], "raw", PARTITIONS, message_timestamp_type="CreateTime", retention_ms=-1)
    create_topic(brokers.urls[0], "counted", 2)
    began = time.monotonic()
    fill(client, carriers)
    print(f"{RECORDS:,} records sent in {time.monotonic() - began:.0f} s")
    driver, began = Driver(servers, tmp_path), time.monotonic()
    driver.start()
    try:
        for batches in sorted((*DRIVER_KILLS, *BROKER_KILLS)):
            driver.until(batches)
            if batches in DRIVER_KILLS:
                driver.kill()
                driver.start()
            else:
                victim = brokers.leader("counted", 0)
                brokers.kill(victim)
                driver.until(batches + 1)
                brokers.start(victim)
        status = driver.ended()
    finally:
        driver.kill()
    assert status == 0, driver.output
    print(
        f"{driver.batches} batches in {time.monotonic() - began:.0f} s, "
        f"with {len(DRIVER_KILLS)} killed drivers"
    )
    command = [sys.executable, str(DRIVER), servers]
    done = subprocess.run(
        command,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    expected, found = done.stdout.splitlines()[-2:]
    print(f"windows, records, checksum: {expected}")
    assert found == expected
    assert int(expected.split()[1]) > RECORDS * 0.9, "most windows are final"
    assert open_ids(client) == []
