"""Brokers that get no CPU now and then, as on a machine that is too busy.

Each broker is stopped at random moments for a random time. A test whose verdict does not depend on time
passes with such brokers, too.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.broker_process import BrokerProcess, StartProcess

EVERY_S: Final = 4.0  # on average, between two pauses of one broker


def with_pauses(start: StartProcess, longest_ms: float) -> StartProcess:
    """Start brokers as ``start`` does, and pause each of them up to ``longest_ms`` at a time."""

    def started(command: Sequence[str], environment: Mapping[str, str], log: Path) -> BrokerProcess:
        return PausedProcess(start(command, environment, log), longest_ms / 1000)

    return started


class PausedProcess:
    """A broker process with pauses, except while a test itself has stopped the process."""

    def __init__(self, process: BrokerProcess, longest_s: float) -> None:
        self.pid = process.pid
        self._process = process
        self._longest_s = longest_s
        self._is_stopped_by_test = False
        self._signalling = threading.Lock()
        threading.Thread(target=self._pause_now_and_then, daemon=True).start()

    def poll(self) -> int | None:
        """See ``BrokerProcess``."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """See ``BrokerProcess``."""
        return self._process.wait(timeout)

    def send_signal(self, sig: int) -> None:
        """See ``BrokerProcess``."""
        with self._signalling:
            if sig in (signal.SIGSTOP, signal.SIGCONT):
                self._is_stopped_by_test = sig == signal.SIGSTOP
            self._process.send_signal(sig)

    def terminate(self) -> None:
        """See ``BrokerProcess``."""
        self._process.terminate()

    def kill(self) -> None:
        """See ``BrokerProcess``."""
        self._process.kill()

    def _pause_now_and_then(self) -> None:
        drawn = random.Random()
        while self.poll() is None:
            time.sleep(drawn.expovariate(1 / EVERY_S))
            self._send_unless_stopped(signal.SIGSTOP)
            time.sleep(drawn.uniform(0, self._longest_s))
            self._send_unless_stopped(signal.SIGCONT)

    def _send_unless_stopped(self, sig: int) -> None:
        with self._signalling:
            if not self._is_stopped_by_test:
                self._process.send_signal(sig)
