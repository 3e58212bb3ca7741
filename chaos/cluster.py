"""A real cluster under control: broker processes that are started, killed, paused and queried.

Decides: how processes are started and stopped, and when a broker counts as ready. Every process that is
started here is ended here, by its pid.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from api.addresses import RPC_PORT_STEP
from api.cluster_files import create_cluster, existing_brokers, settings_path
from chaos.broker_process import BrokerProcess, StartProcess, as_program
from chaos.cluster_view import POLL_S, ClusterFailed, ClusterView
from raftlog.__main__ import COMMAND

PORT_MIN = 10_000
EPHEMERAL_PORT_MIN = 32_768  # the range of outgoing connections on Linux begins here


class Cluster(ClusterView):
    """Brokers as processes on this machine, on consecutive free ports.

    ::

        with Cluster(directory, brokers=3) as cluster:
            cluster.kill(cluster.leader("orders", 0))

    ``commands``: for each broker, a command that runs the command line after it under the same process id.
    ``start_process`` starts the brokers of all clusters of this process.
    """

    start_process: ClassVar[StartProcess] = staticmethod(as_program)

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        environment: Mapping[str, str] | None = None,
        open_files_max: int | None = None,
        commands: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self._commands = commands or {}
        self._limit = ["prlimit", f"--nofile={open_files_max}", "--"] if open_files_max else []
        self._environment = {**os.environ, **(environment or {})}
        self._own_environments: dict[int, dict[str, str]] = {}
        self._processes: dict[int, BrokerProcess] = {}
        self._killed: set[int] = set()  # pids that were ended here
        if not existing_brokers(directory):
            create_cluster(directory, brokers=brokers, http_port=free_ports(brokers))
        super().__init__(
            {broker: _http_url(settings_path(directory, broker)) for broker in existing_brokers(directory)}
        )

    @property
    def running(self) -> list[int]:
        """Ids of the brokers with a running process."""
        return [broker for broker, process in sorted(self._processes.items()) if process.poll() is None]

    def pid(self, broker: int) -> int:
        """Process id of one broker."""
        return self._processes[broker].pid

    def data_directory(self, broker: int) -> Path:
        """The directory of one broker's logs."""
        return settings_path(self.directory, broker).parent / "data"

    def log_text(self, broker: int) -> str:
        """The output of one broker."""
        path = self._log_path(broker)
        return path.read_text(errors="replace") if path.exists() else ""

    def add_environment(self, broker: int, environment: Mapping[str, str]) -> None:
        """From its next start on, the process of this broker has these variables, too."""
        self._own_environments.setdefault(broker, {}).update(environment)

    def start(self, *brokers: int, wait_s: float = 30) -> None:
        """Start brokers (default: all that are not running) and wait until they are ready."""
        chosen = brokers or tuple(broker for broker in self.brokers if broker not in self.running)
        for broker in chosen:
            self.launch(broker)
        self.wait_ready(*chosen, wait_s=wait_s)

    def add(self, config: Path) -> int:
        """A broker that has joined the cluster, with its settings in this directory; its id."""
        from api.settings import load_settings

        settings = load_settings(config)
        self._urls[settings.broker_id] = settings.http.url
        return settings.broker_id

    def launch(self, broker: int, *, environment: Mapping[str, str] | None = None) -> None:
        """Start one broker's process without waiting; only it gets the additional ``environment``."""
        own = self._own_environments.get(broker, {})
        self._processes[broker] = self._new_process(broker, {**own, **(environment or {})})

    def _new_process(self, broker: int, environment: Mapping[str, str]) -> BrokerProcess:
        config = str(settings_path(self.directory, broker))
        command = [*self._commands.get(broker, ()), *self._limit, *COMMAND, "serve", "--config", config]
        return type(self).start_process(command, {**self._environment, **environment}, self._log_path(broker))

    def wait_ready(self, *brokers: int, wait_s: float = 30) -> None:
        """Wait until these brokers report that they are ready. Raises ``ClusterFailed``."""
        deadline = time.monotonic() + wait_s
        for broker in brokers:
            while not self.is_ready(broker):
                if self._processes[broker].poll() is not None or time.monotonic() > deadline:
                    status = self._processes[broker].poll()
                    raise ClusterFailed(
                        f"broker {broker} is not ready (status {status}):\n{self.log_text(broker)[-3000:]}"
                    )
                time.sleep(POLL_S)

    def kill(self, broker: int) -> None:
        """``kill -9``; returns when the process is gone."""
        process = self._processes[broker]
        self._killed.add(process.pid)
        process.kill()
        process.wait()

    def ended(self, broker: int, *, wait_s: float = 30) -> tuple[int, str]:
        """Wait for an expected exit; returns its status and the output, which is then not checked for
        errors.
        """
        process = self._processes[broker]
        status = self._wait_stopped(broker, wait_s)
        self._killed.add(process.pid)
        text = self.log_text(broker)
        self._log_path(broker).unlink()
        return status, text

    def stop(self, broker: int, *, wait_s: float = 15) -> int:
        """SIGTERM; return the exit status. Raises ``ClusterFailed`` when it does not end in time."""
        self._processes[broker].terminate()
        return self._wait_stopped(broker, wait_s)

    def stop_all(self, *, wait_s: float = 15) -> list[int]:
        """SIGTERM to all running brokers at once; returns their exit statuses. Raises ``ClusterFailed``."""
        stopping = self.running
        for broker in stopping:
            self._processes[broker].terminate()
        return [self._wait_stopped(broker, wait_s) for broker in stopping]

    def pause(self, broker: int) -> None:
        """SIGSTOP."""
        self._processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        self._processes[broker].send_signal(signal.SIGCONT)

    def broken(self) -> list[str]:
        """Unexpected exits and tracebacks of brokers."""
        found = []
        for broker, process in sorted(self._processes.items()):
            status = process.poll()
            if status not in (None, 0) and process.pid not in self._killed:
                found.append(f"broker {broker} ended with status {status}")
        for broker in self.brokers:
            text = self.log_text(broker)
            if "Traceback" in text or "level='critical'" in text:
                found.append(f"broker {broker} printed a traceback")
        return found and [*found, *(self.log_text(broker)[-3000:] for broker in self.brokers)]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for broker in self.running:
            self.resume(broker)
            self._processes[broker].terminate()
        for broker, process in self._processes.items():
            try:
                process.wait(12)
            except subprocess.TimeoutExpired:
                self.kill(broker)
        if error is None and (found := self.broken()):
            raise ClusterFailed("\n".join(found))

    def _wait_stopped(self, broker: int, wait_s: float) -> int:
        try:
            return self._processes[broker].wait(wait_s)
        except subprocess.TimeoutExpired:
            raise ClusterFailed(f"broker {broker} did not stop:\n{self.log_text(broker)[-3000:]}") from None

    def _log_path(self, broker: int) -> Path:
        return settings_path(self.directory, broker).parent / "log"


def _http_url(config: Path) -> str:
    from api.settings import load_settings

    return load_settings(config).http.url


_slots = count(os.getpid() * 211)  # clusters of the same minute get distant ports


def free_ports(how_many: int) -> int:
    """The first of several consecutive free ports; those ``RPC_PORT_STEP`` above are free, too.

    All are below the range of outgoing connections: otherwise a client that dials a stopped broker could get
    the broker's own port. A stopped broker does not reserve its port, so clusters of one process begin at
    least ten ports apart.
    """
    rows = [
        first + row
        for first in range(PORT_MIN, EPHEMERAL_PORT_MIN - 2 * RPC_PORT_STEP, 2 * RPC_PORT_STEP)
        for row in range(0, RPC_PORT_STEP, 10)
    ]
    for slot in islice(_slots, len(rows)):
        first = rows[slot % len(rows)]
        wanted = range(first, first + how_many)
        if all(_is_free(port) and _is_free(port + RPC_PORT_STEP) for port in wanted):
            return first
    raise ClusterFailed(f"found no {how_many} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
