"""Defines the interface of broker processes, and the signals of those that are forks.

Clusters start and end each broker through this interface. ``chaos.fork_server`` and
``chaos.kit.forked_broker`` decide how forks start and how their ends are awaited.
"""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol


class BrokerProcess(Protocol):
    """A process of a broker, with the interface of ``subprocess.Popen``."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raises ``subprocess.TimeoutExpired``."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


class ForkedProcess(ABC):
    """Sends signals to a fork, but only while ``poll`` has not reaped it."""

    pid: int

    @abstractmethod
    def poll(self) -> int | None:
        """Return the exit status of the fork, None while it runs; see ``BrokerProcess``."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the fork has ended; see ``BrokerProcess``."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Send SIGTERM; see ``BrokerProcess``."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL; see ``BrokerProcess``."""
        self.send_signal(signal.SIGKILL)


StartProcess = Callable[[Sequence[str], Mapping[str, str], Path], BrokerProcess]
"""Starts a command with exactly this environment, and appends its output to the file."""


def as_program(command: Sequence[str], environment: Mapping[str, str], log: Path) -> BrokerProcess:
    """Start a command with ``subprocess.Popen``; see ``StartProcess``.

    The process leads a process group, so that Ctrl-C reaches only the tests. It stays in the session of the
    tests: Linux gives each session an equal share of the CPU, and ten busy brokers in their own sessions
    would starve the tests.
    """
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, process_group=0)
