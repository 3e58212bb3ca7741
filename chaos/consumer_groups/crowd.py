"""Runs processes with members of one group; the processes can be killed and paused."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from chaos.stacks import ask
from raftlog.__main__ import command_of
from raftlog.testing.waits import LIMIT_S, states

STOP_S = 2 * LIMIT_S  # a consumer that closes commits for up to half a minute, and then leaves
SHOW_S = 2.0  # longest wait for a process to print its stacks
OUTPUT_MAX = 20_000
MODULE = "chaos.consumer_groups"


class CrowdFailed(Exception):
    """A process ended without a request, or did not end in time. The message has the end of its output."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process that runs members."""

    urls: list[str]
    group: str
    topic: str
    name: str  # first part of its members' names
    file: str
    seed: int
    members: int
    life_s: float  # average of a member
    steady_at_s: float  # from this time on, members do not end by themselves


class Crowd:
    """Several processes with members, numbered from 0; each writes its files in a directory.

    The end of the block stops all processes.
    """

    def __init__(
        self, directory: Path, settings: Settings, members: Sequence[int], *, module: str = MODULE
    ) -> None:
        """``members`` has the number of members of each process. The name, file and seed of a process follow
        from ``settings``.

        Each process runs ``module``, with its settings as JSON.
        """
        self._module = module
        self._directory = directory
        self._settings = settings
        self._members = list(members)
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(self._members)
        self._started = 0

    def __len__(self) -> int:
        return len(self._members)

    def start(self, number: int) -> str:
        """Start process ``number`` with new members; return the first part of their names."""
        self._started += 1
        name = f"p{number}-{self._started}"
        settings = msgspec.structs.replace(
            self._settings,
            name=name,
            file=str(self._directory / f"{name}.jsonl"),
            seed=self._settings.seed + self._started,
            members=self._members[number],
        )
        command = [*command_of(self._module), msgspec.json.encode(settings).decode()]
        with self._log(number).open("ab") as log:
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log)
        return name

    def kill(self, number: int) -> None:
        """Send SIGKILL to a process; return when it has ended.

        Raises ``CrowdFailed`` if it had ended before.
        """
        process = self._running(number)
        process.kill()
        process.wait()
        self._processes[number] = None

    def pause(self, number: int) -> None:
        """Send SIGSTOP to a process."""
        self._running(number).send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Send SIGCONT to a process."""
        self._running(number).send_signal(signal.SIGCONT)

    def check(self) -> list[subprocess.Popen[bytes]]:
        """Return the processes that were started and not killed. Raises ``CrowdFailed`` if such a process has
        ended.
        """
        return [self._running(number) for number, process in enumerate(self._processes) if process]

    def stop(self) -> None:
        """Let all members leave and all processes end. Raises ``CrowdFailed`` if a process does not end.

        A process that has just been started may end by the signal itself, because it has no members yet.
        """
        running = self.check()
        for process in running:
            process.terminate()
        for number, process in enumerate(running):
            try:
                status = process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                ask(process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SHOW_S)
                raise CrowdFailed(
                    f"process {number} did not end:\n{self._output(number)}\n{states()}"
                ) from None
            if status not in (0, -signal.SIGTERM):
                raise CrowdFailed(f"process {number} ended with {status}:\n{self._output(number)}")
        self._processes = [None] * len(self._members)

    def __enter__(self) -> Self:
        for number in range(len(self._members)):
            self.start(number)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            if process is not None:
                process.kill()
                process.wait()

    def _running(self, number: int) -> subprocess.Popen[bytes]:
        process = self._processes[number]
        if process is None or process.poll() is not None:
            status = None if process is None else process.returncode
            raise CrowdFailed(f"process {number} does not run (status {status}):\n{self._output(number)}")
        return process

    def _log(self, number: int) -> Path:
        return self._directory / f"{number}.log"

    def _output(self, number: int) -> str:
        return self._log(number).read_text(errors="replace")[-OUTPUT_MAX:]
