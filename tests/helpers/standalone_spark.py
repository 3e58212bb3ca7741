"""A standalone cluster of Spark from its pip package: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.ports import free_ports

HOSTS = ("127.0.0.1", "127.0.0.2")  # of the workers: Spark takes them for two machines
EXECUTOR = "CoarseGrainedExecutorBackend"


class StandaloneSpark:
    """One core and 700 MB for each worker. All processes are killed at the end."""

    def __init__(self, home: Path, directory: Path, environment: Mapping[str, str]) -> None:
        """``home`` is the folder of the package ``pyspark``."""
        self._home = home
        self._directory = directory
        self._environment = {
            **os.environ,
            **environment,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        self._port = free_ports(4)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The master, for ``--master``."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the master and the workers, which look for it until it is there."""
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._port + 1)]
        self._master = self._spawn("master", "org.apache.spark.deploy.master.Master", where)
        for number, host in enumerate(HOSTS):
            size = ["--cores", "1", "--memory", "700m", "--work-dir", str(self._directory / f"work-{number}")]
            port = ["--host", host, "--webui-port", str(self._port + 2 + number)]
            self._workers.append(
                self._spawn(
                    f"worker-{number}", "org.apache.spark.deploy.worker.Worker", [*size, *port, self.url]
                )
            )

    def executors(self, worker: int) -> list[int]:
        """The pids of the executors of a worker."""
        return [
            pid for pid in _children(self._workers[worker].pid) if EXECUTOR.encode() in _command_line(pid)
        ]

    def kill_executor(self, worker: int) -> None:
        """``kill -9``; its worker starts another one."""
        for pid in self.executors(worker):
            os.kill(pid, signal.SIGKILL)

    def kill_worker(self, worker: int) -> None:
        """``kill -9`` of a whole machine: the worker with its executors and their Python workers."""
        os.killpg(self._workers[worker].pid, signal.SIGKILL)
        self._workers[worker].wait()

    def stop(self) -> None:
        """Kill what still runs."""
        for process in (*self._workers, *([self._master] if self._master else [])):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, name: str) -> str:
        """The end of what ``master``, ``worker-0`` or ``worker-1`` has written."""
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3_000:]

    def _spawn(self, name: str, program: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command = [str(self._home / "bin" / "spark-class"), program, *arguments]
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(path.parent.name))
    return found


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
