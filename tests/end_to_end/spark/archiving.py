"""Runs ``archiving_driver``: an archive of the topic ``history`` whose drivers are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.vocabulary import ENVIRONMENT
from tests.helpers.real_cluster import create_topic

DRIVER = Path(__file__).with_name("archiving_driver.py")
RECORDS = 350
PATIENCE_S = 900.0


def drive(servers: str, folder: Path, when: str, layout: str) -> int:
    """Run a driver to its end or to its death; its status."""
    arguments = [sys.executable, str(DRIVER), servers, str(folder), when, layout]
    with (folder / f"{when}.log").open("wb") as log:
        process = subprocess.Popen(
            arguments, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def archive_with_killed_drivers(brokers: Cluster, folder: Path, layout: str) -> None:
    """Fill the topic in transactions, and archive it: one driver is killed before a commit, one behind it."""
    servers = ",".join(brokers.urls)
    create_topic(brokers.urls[0], "history", 2, message_timestamp_type="CreateTime")
    with Client(servers) as client, client.producer("history", transactional_id="writer") as producer:
        for first in range(0, RECORDS, 70):
            with producer.transaction() as transaction:  # its end takes an offset of each partition
                for number in range(first, first + 70):
                    headers = {"number": str(number)} if number % 2 else None
                    transaction.send(str(number), key=f"k{number}", headers=headers, timestamp=1_000 + number)
    for when, status in (("before", -signal.SIGKILL), ("after", -signal.SIGKILL), ("never", 0)):
        log = folder / f"{when}.log"
        assert drive(servers, folder, when, layout) == status, log.read_text()[-3_000:]
