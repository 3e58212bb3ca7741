"""Runs ``faulty_driver``, one or several at a time, for one query."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.vocabulary import ENVIRONMENT, visible
from tests.helpers.real_cluster import create_topic, eventually

DRIVER = Path(__file__).with_name("faulty_driver.py")
PATIENCE_S = 900.0
BATCH_ROWS = 100


class Drivers:
    """Drivers of one query, with one checkpoint. All that still run are killed at the end."""

    def __init__(self, brokers: Cluster, client: Client, directory: Path, name: str) -> None:
        """Its topics begin with ``name``."""
        self.source, self.target = f"{name}-raw", f"{name}-copy"
        self._client = client
        self._servers = ",".join(brokers.urls)
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for topic in (self.source, self.target):
            create_topic(brokers.urls[0], topic, 2)

    def fill(self, records: int) -> None:
        """Numbers from 0 on; each batch takes 100 of them."""
        with self._client.producer(self.source) as producer:
            for number in range(records):
                producer.send(str(number), key=f"k{number}")

    @property
    def copied(self) -> list[int]:
        """What readers see, counted without Spark."""
        return sorted(int(one.value or b"") for one in visible(self._client, self.target))

    def start(self, name: str, when: str, batch: int) -> None:
        """Start one in a process group of its own, and wait until it says that it is there."""
        self._spawn(name, when, batch)
        eventually(
            lambda: self._is_there(name),
            what=f"{name} is {when} its commit",
            progress=lambda: self._seen(name),
        )

    def run(self, name: str, when: str = "never", batch: int = -1) -> tuple[int, str]:
        """Run one to its end, or to its death; its status and its output."""
        self._spawn(name, when, batch)
        return self._end(name)

    def kill(self, name: str) -> None:
        """``kill -9``."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def ended(self, name: str) -> tuple[int, str]:
        """Let one go on to its end; its status and its output."""
        (self._directory / f"{name}.go").touch()
        return self._end(name)

    def kill_all(self) -> None:
        """At the end of the test."""
        for name in tuple(self._running):
            self.kill(name)

    def _spawn(self, name: str, when: str, batch: int) -> None:
        command = [sys.executable, str(DRIVER), self._servers, str(self._directory), name, when, str(batch)]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*command, self.source, self.target],
                env={**os.environ, **ENVIRONMENT},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str) -> tuple[int, str]:
        status = self._running[name].wait(PATIENCE_S)
        return status, (self._directory / f"{name}.log").read_text(errors="replace")

    def _seen(self, name: str) -> object:
        """The progress of a driver: its output, its checkpoint and the records that it has copied."""
        log = self._directory / f"{name}.log"
        checkpoint = sum(1 for _ in (self._directory / "checkpoint").rglob("*"))
        return log.stat().st_size, checkpoint, len(self.copied)

    def _is_there(self, name: str) -> bool:
        log = self._directory / f"{name}.log"
        assert self._running[name].poll() is None, log.read_text(errors="replace")[-3_000:]
        return (self._directory / name).exists()
