"""Controls a real cluster: starts, kills, pauses and queries its broker processes.

Decides: how processes are started and stopped, and when a broker counts as ready. This module ends all
processes that it started, by their pids.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from broker.addresses import RPC_PORT_STEP
from broker.cluster_files import create_cluster, existing_brokers, settings_path
from chaos.broker_process import BrokerProcess, StartProcess, as_program
from chaos.cluster_view import POLL_S, ClusterFailed, ClusterView
from chaos.ports import free_ports, release
from chaos.stacks import COMMAND, ask
from raftlog.testing.waits import LIMIT_S, describe_on_expiry

LOG_TAIL: Final = 3_000  # characters of a broker's log that an error shows
STACKS_MAX: Final = 30_000  # characters of a broker's stacks that an error shows
SHOW_S: Final = 2.0  # longest wait for a broker to print its stacks
END_S: Final = 12.0  # time after SIGTERM, after which a broker is killed; that alone is no failure


class Cluster(ClusterView):
    """Brokers as processes on this machine, on consecutive free ports.

    ::

        with Cluster(directory, brokers=3) as cluster:
            cluster.kill(cluster.leader("orders", 0))

    ``commands``: for each broker, a program that runs the command line that follows, under the same process
    id. ``start_process`` starts the brokers of all clusters of this process; ``variables`` are added to their
    environment, before the variables of a cluster.
    """

    start_process: ClassVar[StartProcess] = staticmethod(as_program)
    variables: ClassVar[Mapping[str, str]] = {}

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
        self._environment = {**os.environ, **self.variables, **(environment or {})}
        self._own_environments: dict[int, dict[str, str]] = {}
        self._processes: dict[int, BrokerProcess] = {}
        self._killed: set[int] = set()  # pids that this cluster ended
        if not existing_brokers(directory):
            first = free_ports(brokers)
            weakref.finalize(self, release, first, brokers)
            create_cluster(directory, brokers=brokers, http_port=first)
        super().__init__(
            {broker: _http_url(settings_path(directory, broker)) for broker in existing_brokers(directory)}
        )
        describe_on_expiry(self)

    @property
    def running(self) -> list[int]:
        """Ids of the brokers with a running process."""
        return [broker for broker, process in sorted(self._processes.items()) if process.poll() is None]

    @property
    def ended_processes(self) -> list[int]:
        """Ids of the brokers whose process was started and has ended."""
        return sorted(self._processes.keys() - self.running)

    def pid(self, broker: int) -> int:
        """The process id of a broker."""
        return self._processes[broker].pid

    def data_directory(self, broker: int) -> Path:
        """The directory with the logs of a broker."""
        return settings_path(self.directory, broker).parent / "data"

    def log_text(self, broker: int) -> str:
        """The output of a broker's processes so far."""
        path = self._log_path(broker)
        return path.read_text(errors="replace") if path.exists() else ""

    def add_environment(self, broker: int, environment: Mapping[str, str]) -> None:
        """Add variables to the environment of a broker's process; they take effect at its next start."""
        self._own_environments.setdefault(broker, {}).update(environment)

    def start(self, *brokers: int, wait_s: float = LIMIT_S) -> None:
        """Start brokers (default: all that are not running) and wait until they are ready."""
        chosen = brokers or tuple(broker for broker in self.brokers if broker not in self.running)
        for broker in chosen:
            self.launch(broker)
        self.wait_ready(*chosen, wait_s=wait_s)

    def add(self, config: Path) -> int:
        """Add a broker that has joined the cluster and whose settings are in the cluster's directory; return
        its id.
        """
        from broker.settings import load_settings

        settings = load_settings(config)
        self._urls[settings.broker_id] = settings.http.url
        return settings.broker_id

    def launch(self, broker: int, *, environment: Mapping[str, str] | None = None) -> None:
        """Start the process of a broker without waiting; only this process gets the additional
        ``environment``.
        """
        own = self._own_environments.get(broker, {})
        self._processes[broker] = self._new_process(broker, {**own, **(environment or {})})

    def start_copy(self, broker: int, data: Path) -> tuple[BrokerProcess, Path]:
        """Start a second process of a broker, on a copy of its data and with other ports.

        Returns the process, and the file with its output.
        """
        port = free_ports(1)
        weakref.finalize(self, release, port, 1)
        own = {
            **self._own_environments.get(broker, {}),
            "RAFTLOG_BROKER__DATA_DIRECTORY": str(data),
            "RAFTLOG_BROKER__HTTP__PORT": str(port),
            "RAFTLOG_BROKER__RPC__PORT": str(port + RPC_PORT_STEP),
        }
        log = data.with_suffix(".log")
        return self._process(broker, own, log), log

    def _new_process(self, broker: int, environment: Mapping[str, str]) -> BrokerProcess:
        return self._process(broker, environment, self._log_path(broker))

    def _process(self, broker: int, environment: Mapping[str, str], log: Path) -> BrokerProcess:
        config = str(settings_path(self.directory, broker))
        command = [*self._commands.get(broker, ()), *self._limit, *COMMAND, "serve", "--config", config]
        return type(self).start_process(command, {**self._environment, **environment}, log)

    def wait_ready(self, *brokers: int, wait_s: float = LIMIT_S) -> None:
        """Wait until these brokers report that they are ready. Raises ``ClusterFailed``."""
        deadline = time.monotonic() + wait_s
        for broker in brokers:
            while not self.is_ready(broker):
                if self._processes[broker].poll() is not None or time.monotonic() > deadline:
                    status = self._processes[broker].poll()
                    raise ClusterFailed(f"broker {broker} is not ready (status {status}):\n{self.state()}")
                time.sleep(POLL_S)

    def kill(self, broker: int) -> None:
        """Send SIGKILL to a broker; return when its process has ended."""
        process = self._processes[broker]
        self._killed.add(process.pid)
        process.kill()
        process.wait()

    def ended(self, broker: int) -> tuple[int, str]:
        """Wait for an expected exit of a broker; return its exit status and its output. Later checks ignore
        this output.
        """
        process = self._processes[broker]
        status = self._wait_stopped(broker)
        self._killed.add(process.pid)
        text = self.log_text(broker)
        self._log_path(broker).unlink()
        return status, text

    def stop(self, broker: int) -> int:
        """Send SIGTERM to a broker; return its exit status.

        Raises ``ClusterFailed`` if the process does not end in time.
        """
        self._processes[broker].terminate()
        return self._wait_stopped(broker)

    def stop_all(self) -> list[int]:
        """Send SIGTERM to all running brokers; return their exit statuses. Raises ``ClusterFailed``."""
        stopping = self.running
        for broker in stopping:
            self._processes[broker].terminate()
        return [self._wait_stopped(broker) for broker in stopping]

    def pause(self, broker: int) -> None:
        """Send SIGSTOP to a broker."""
        self._processes[broker].send_signal(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """Send SIGCONT to a broker."""
        self._processes[broker].send_signal(signal.SIGCONT)

    def broken(self) -> list[str]:
        """Return the unexpected exits and the tracebacks of brokers."""
        found = []
        for broker, process in sorted(self._processes.items()):
            status = process.poll()
            if status not in (None, 0) and process.pid not in self._killed:
                found.append(f"broker {broker} ended with status {status}")
        for broker in self.brokers:
            text = self.log_text(broker)
            if "Traceback" in text or "level='critical'" in text:
                found.append(f"broker {broker} printed a traceback:\n{_around_traceback(text)}")
        return found and [*found, *(self.log_text(broker)[-LOG_TAIL:] for broker in self.brokers)]

    def state(self) -> str:
        """Describe each broker: its process, whether it is ready, and the end of its log, with the stacks of
        its threads and tasks.
        """
        if not self._processes:
            return ""
        return "\n".join([f"cluster in {self.directory}", *map(self._state_of, sorted(self._processes))])

    def _state_of(self, broker: int) -> str:
        process, text = self._processes[broker], self.log_text(broker)
        status = process.poll()
        if status is not None:
            return f"broker {broker} ended with status {status}:\n{text[-LOG_TAIL:]}"
        ready = "ready" if self.is_ready(broker) else "not ready"
        return f"broker {broker} runs (pid {process.pid}), {ready}:\n{text[-LOG_TAIL:]}{self._stacks(broker)}"

    def _stacks(self, broker: int) -> str:
        """Ask a broker for the stacks of its threads and tasks; return its output."""
        before = len(self.log_text(broker))
        if not ask(self._processes[broker].pid):
            return "(it has no handler that shows its stacks)"
        deadline, seen = time.monotonic() + SHOW_S, before
        while time.monotonic() < deadline:
            time.sleep(SHOW_S / 10)  # the log must not grow between two looks
            now = len(self.log_text(broker))
            if now == seen > before:
                break
            seen = now
        return self.log_text(broker)[before:][:STACKS_MAX] or "(it did not show its stacks)"

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
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.kill(broker)
        if error is None and (found := self.broken()):
            raise ClusterFailed("\n".join(found))

    def _wait_stopped(self, broker: int) -> int:
        try:
            return self._processes[broker].wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ClusterFailed(f"broker {broker} did not stop:\n{self.state()}") from None

    def _log_path(self, broker: int) -> Path:
        return settings_path(self.directory, broker).parent / "log"


def _around_traceback(log: str) -> str:
    """Return the part of a log around its first traceback."""
    at = max(0, log.find("Traceback") if "Traceback" in log else log.find("level='critical'"))
    return log[log.rfind("\n", 0, at) + 1 :][:STACKS_MAX]


def _http_url(config: Path) -> str:
    from broker.settings import load_settings

    return load_settings(config).http.url
