"""Starts brokers as forks of a process that has imported the broker's modules, which needs a seventh of the
CPU time.

For tests, which start brokers by the thousand. Decides: which brokers can be forks. A broker that needs
another program before its own, or a variable that is read before Python runs, is started as a program.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from chaos import stacks
from chaos.broker_process import BrokerProcess, ForkedProcess, as_program
from raftlog.__main__ import COMMAND, main

READ_BEFORE_MODULES: Final = ("LD_", "PYTHON")  # prefixes of the names of these variables

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["api.cli.commands", "api.server", "broker.process.logs", __name__])
_reading = threading.Lock()  # held while a status is read, which starts do, too: a status can be read once


def as_fork(command: Sequence[str], environment: Mapping[str, str], log: Path) -> BrokerProcess:
    """Run a broker's command with this environment; its output is appended to ``log``."""
    changed = environment.items() ^ os.environ.items()
    comes_too_late = any(name.startswith(READ_BEFORE_MODULES) for name, _ in changed)
    for program in (stacks.COMMAND, COMMAND):
        if not comes_too_late and tuple(command[: len(program)]) == program:
            return ForkedCommand(command[len(program) :], environment, log)
    return as_program(command, environment, log)


class ForkedCommand(ForkedProcess):
    """The part of the interface of ``subprocess.Popen`` that clusters need. Safe for use by many threads."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        given = ([*arguments], {**environment}, str(log))
        self._process = _forks.Process(target=_run, args=given, daemon=True)
        with _reading:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        with _reading:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit status. Raises
        ``subprocess.TimeoutExpired``.
        """
        wait([self._process.sentinel], timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0)
        return status


def _run(arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.setpgid(0, 0)  # see ``as_program``
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv = [COMMAND[-1], *arguments]
    stacks.show_on_signal()
    try:
        main()
    finally:
        logging.shutdown()  # a fork of multiprocessing ends without it, and its last lines would be lost
