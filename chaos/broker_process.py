"""Defines the interface of broker processes, and sends signals to processes that are forks.

Clusters start and end each broker through this interface. ``chaos.fork_server`` and
``chaos.kit.forked_broker`` decide how a fork starts and how its end is awaited.
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
        """Wait for the end of the process and return its exit status. Raises
        ``subprocess.TimeoutExpired``.
        """

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process, unless it has ended."""

    def terminate(self) -> None:
        """Send SIGTERM to the process."""

    def kill(self) -> None:
        """Send SIGKILL to the process."""


class ForkedProcess(ABC):
    """Sends signals to a forked process, but only before ``poll`` has reaped it."""

    pid: int

    @abstractmethod
    def poll(self) -> int | None:
        """Return the exit status of the fork; None while it runs; see ``BrokerProcess``."""

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
"""A function that starts a command with exactly this environment, and appends the command's output to the
file.
"""


def as_program(command: Sequence[str], environment: Mapping[str, str], log: Path) -> BrokerProcess:
    """Start a command with ``subprocess.Popen``; see ``StartProcess``.

    The process leads a process group, so that Ctrl-C reaches only the tests. It stays in the session of the
    tests: Linux gives each session an equal share of the CPU, and ten busy brokers in their own sessions
    would starve the tests.
    """
    with log.open("ab") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment, process_group=0)
