"""Starts the process of the testing kit's brokers, sends orders to it, and receives their outcomes.

The process of the brokers leads a process group of its own, so Ctrl-C reaches only the tests. The process
ends when the process of the tests ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import IO, Final

import msgspec

from raftlog.testing import orders

STOP_S: Final = 10.0
_outcomes = msgspec.json.Decoder(orders.Outcome)


class KitFailed(Exception):
    """The testing kit could not do what a test asked for, or a broker failed by itself."""


class Supervisor:
    """The process of the brokers.

    Creating this object does not wait for the process. For any number of threads.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "raftlog.testing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "SSL_CERT_FILE": os.devnull,
            },  # loading certificates takes a tenth of the start
            process_group=0,
        )
        self._lock = threading.Lock()
        self._early: dict[orders.Order, orders.Outcome | None] = {}  # None: the outcome is not read yet

    @property
    def pid(self) -> int:
        """The process id of the process whose children are the brokers."""
        return self._process.pid

    def begin(self, order: orders.Order) -> None:
        """Send an order early, without waiting; a later ``ask`` with an equal order gets the outcome."""
        with self._lock, contextlib.suppress(KitFailed):  # ``ask`` will fail, too
            self._early[order] = None
            self._send(order)

    def ask(self, order: orders.Order) -> orders.Done:
        """Send an order, and return its outcome once it is carried out. Raises ``KitFailed``."""
        with self._lock:
            try:
                for early in [early for early, outcome in self._early.items() if outcome is None]:
                    self._early[early] = self._receive()
                outcome = self._early.pop(order, None)
                if outcome is None:
                    self._send(order)
                    outcome = self._receive()
            except BaseException:  # such as Ctrl-C: a later order could get this outcome
                self._end_orders()
                raise
        if isinstance(outcome, orders.Failed):
            raise KitFailed(outcome.why)
        return outcome

    def close(self) -> None:
        """End the process and all brokers."""
        self._end_orders()
        self._wait()
        self.stdout.close()

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe with the orders to the process."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The pipe with the outcomes of the orders."""
        assert self._process.stdout is not None
        return self._process.stdout

    def _send(self, order: orders.Order) -> None:
        try:
            self.stdin.write(msgspec.json.encode(order) + b"\n")
            self.stdin.flush()
        except (OSError, ValueError) as error:  # ``ValueError`` once the pipe is closed
            raise self._ended() from error

    def _end_orders(self) -> None:
        with contextlib.suppress(OSError):
            self.stdin.close()

    def _receive(self) -> orders.Outcome:
        line = self.stdout.readline()
        if not line:
            raise self._ended()
        outcome: orders.Outcome = _outcomes.decode(line)
        return outcome

    def _wait(self) -> int:
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _ended(self) -> KitFailed:
        return KitFailed(
            f"the process of the brokers ended with status {self._wait()}; its errors are on stderr"
        )
