"""The other process of the testing kit, seen from the tests: orders to it, and their outcomes.

It leads a process group, so Ctrl-C reaches the tests only, and it ends when this process does.
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
    """Starts the process at once and waits for nothing. For any number of threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "raftlog.testing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "SSL_CERT_FILE": os.devnull,
            },  # or a tenth of its start is loading certificates
            process_group=0,
        )
        self._lock = threading.Lock()
        self._early: dict[orders.Order, orders.Outcome | None] = {}  # outcomes as far as they are read

    @property
    def pid(self) -> int:
        """The process; its children are the brokers."""
        return self._process.pid

    def begin(self, order: orders.Order) -> None:
        """Have an order carried out that will be asked for later."""
        with self._lock, contextlib.suppress(KitFailed):  # asking for it fails as well
            self._early[order] = None
            self._send(order)

    def ask(self, order: orders.Order) -> orders.Done:
        """Returns when it was carried out. Raises ``KitFailed``."""
        with self._lock:
            try:
                for early in [early for early, outcome in self._early.items() if outcome is None]:
                    self._early[early] = self._receive()
                outcome = self._early.pop(order, None)
                if outcome is None:
                    self._send(order)
                    outcome = self._receive()
            except BaseException:  # as by Ctrl-C: this outcome could be taken for that of a later order
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
        except (OSError, ValueError) as error:  # the latter once there are no more orders
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
