"""Runs one broker of the kit: a fork of this process, and the socket over which the broker gets its faults.

The broker ends when the kit's end of the socket is closed, so that it does not outlive the kit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from api.server import run_in
from broker.broker import BrokerEnvironment
from broker.settings import BrokerSettings
from chaos.broker_process import ForkedProcess
from chaos.kit.disk import UnreliableDisk
from chaos.kit.network import CuttableTransport
from chaos.stacks import show_on_signal
from raftlog.testing.shifted_clock import ShiftedClock
from raftlog.testing.waits import LIMIT_S
from raftlog.types import NodeId

ANSWER_S: Final = LIMIT_S
HELD_FILES_MAX: Final = 128
LOG_FORMAT: Final = "timestamp='%(asctime)s' level='%(levelname)s' logger='%(name)s' event='%(message)s'"


class Faults(msgspec.Struct, frozen=True):
    """The faults in effect at one broker."""

    shift_ms: int = 0  # shift of its wall clock
    passed_ms: int = 0  # time added to its monotonic clock
    disk_delay_ms: int = 0
    cut: tuple[int, ...] = ()  # peers whose links are cut


class PowerLoss(msgspec.Struct, frozen=True, tag=True):
    """Order to end at once, after a power loss: the seed chooses what the disk keeps."""

    seed: int


class NewFaults(msgspec.Struct, frozen=True, tag=True):
    """Order to replace the faults in effect at the broker."""

    faults: Faults


_orders = msgspec.json.Decoder(PowerLoss | NewFaults)
_open_here: set[socket.socket] = set()  # this process's ends of sockets, which its forks close


class ForkedBroker(ForkedProcess):
    """A running broker, with the socket that sets its faults."""

    def __init__(self, settings: BrokerSettings, log: Path, faults: Faults) -> None:
        self._status: int | None = None
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(ANSWER_S)
        _open_here.add(self._socket)
        self.pid = os.fork()
        if self.pid == 0:
            _run(settings, log, faults, theirs)
        theirs.close()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
                _open_here.discard(self._socket)
                self._socket.close()
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit status. Raises
        ``subprocess.TimeoutExpired``.
        """
        limit_s = ANSWER_S if timeout is None else timeout
        deadline = time.monotonic() + limit_s
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"broker {self.pid}", limit_s)
            time.sleep(0.002)
        return status

    def set_faults(self, faults: Faults) -> None:
        """Replace the faults of the broker; return when the new faults are in effect. Raises ``OSError``."""
        self._socket.sendall(msgspec.json.encode(NewFaults(faults)) + b"\n")
        if not self._socket.recv(1):
            raise ConnectionError(f"broker {self.pid} has ended")

    def lose_power(self, seed: int) -> None:
        """Order the broker to lose power; return when its process has ended.

        Raises ``OSError`` and ``subprocess.TimeoutExpired``.
        """
        self._socket.sendall(msgspec.json.encode(PowerLoss(seed)) + b"\n")
        self.wait()


def _run(settings: BrokerSettings, log: Path, faults: Faults, control: socket.socket) -> NoReturn:
    """Run a broker in this forked process, and end the process with the broker's exit status."""
    status = 1
    try:
        for other in _open_here:
            other.close()
        with log.open("ab") as output, open(os.devnull, "rb") as nothing:
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source.fileno(), target)
        show_on_signal()
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logging.addLevelName(level, logging.getLevelName(level).lower())
        logging.basicConfig(format=LOG_FORMAT, level=logging.INFO, stream=sys.stderr)
        status = run_in(settings, _Equipment(settings, faults, control).equip)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


class _Equipment:
    """The clock, disk and links of the broker, and the socket over which orders change them."""

    def __init__(self, settings: BrokerSettings, faults: Faults, control: socket.socket) -> None:
        self._faults = faults
        self._control = control
        self._received = b""
        self._clock = ShiftedClock()
        self._data_directory = str(settings.data_directory)

    def equip(self, machine: BrokerEnvironment) -> BrokerEnvironment:
        """Return the environment of this machine with another clock, filesystem and transport."""
        self._disk = UnreliableDisk(self._data_directory, HELD_FILES_MAX)
        self._transport = CuttableTransport(machine.transport)
        self._set(self._faults)
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._read)
        return replace(machine, clock=self._clock, filesystem=self._disk, transport=self._transport)

    def _read(self) -> None:
        data = self._control.recv(65536)
        if not data:  # the kit has ended
            os.kill(os.getpid(), signal.SIGKILL)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            match _orders.decode(line):
                case PowerLoss(seed):
                    self._disk.lose_power(random.Random(seed))
                    os.kill(os.getpid(), signal.SIGKILL)
                case NewFaults(faults):
                    self._set(faults)
                    self._control.send(b".")

    def _set(self, faults: Faults) -> None:
        self._clock.shift_ms, self._clock.passed_ms = faults.shift_ms, faults.passed_ms
        self._disk.delay_s = faults.disk_delay_ms / 1000
        self._transport.cut(frozenset(map(NodeId, faults.cut)))
