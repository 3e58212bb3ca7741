"""A reader who pastes the blocks of a page, one after another, into a shell in a folder of her own.

Decides: what stands for a terminal, and where brokers listen: a page's ports 7070 to 7079, and those 100
above, become free ports, so that pages run side by side. Leaves to others: what is installed
(``from_outside``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from broker.addresses import RPC_PORT_STEP
from chaos.ports import free_ports, release
from raftlog.testing.waits import LIMIT_S, eventually
from tests.helpers.documented_commands import Block, Shown, ids, is_as_shown

PORT: Final = 7070
PORTS: Final = 10
COMMAND_S: Final = 10 * LIMIT_S  # a run of chaos has several waits
INTERRUPTED: Final = (0, 130, -signal.SIGINT)
# Each command gets the directory and the variables that the command before has left.
SHELL: Final = (
    '. "$0.env" && cd "$(cat "$0.cwd")" && eval "$1"; status=$?; '
    'export -p > "$0.env"; pwd > "$0.cwd"; exit $status'
)


class PageIsWrong(AssertionError):
    """A command of a page fails, or does not print what the page shows."""


class Reader:
    """A reader of a page. Processes that the reader starts end with the block."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._first = free_ports(PORTS)
        variables = {
            **environment,
            "RAFTLOG_URL": f"http://127.0.0.1:{self._first}",
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",  # as on a terminal
        }
        self._named: dict[str, str] = {}  # ids of the page, and those of the run
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        (folder / ".shell.cwd").write_text(f"{folder}\n")
        exports = [
            f"export {name}={shlex.quote(value)}\n"
            for name, value in variables.items()
            if name.isidentifier()
        ]
        (folder / ".shell.env").write_text("".join(exports))

    def paste(self, block: Block) -> None:
        """Run a block, or write the file that it is. Raises ``PageIsWrong``."""
        if block.file:
            path = self._folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.text))
        elif block.language == "python":
            path = self._folder / f"pasted_{block.line}.py"
            path.write_text(self._here(block.text))
            self._run(Shown(f"python {path.name}", block.output), str(block), is_endless=block.is_endless)
        for shown in block.commands:
            is_cluster = shown.command.startswith(("raftlog dev", "raftlog serve")) and not shown.is_refused
            is_endless = block.is_endless or is_cluster or shown.is_watched
            self._run(shown, str(block), is_endless=is_endless)

    def _here(self, text: str) -> str:
        """The text of a page with the ports and the ids of this run."""
        for name, found in self._named.items():
            text = text.replace(name, found)
        shift = self._first - PORT
        for step in (0, RPC_PORT_STEP):
            text = re.sub(rf"\b{(PORT + step) // 10}\d\b", lambda port: str(int(port[0]) + shift), text)
        return re.sub(
            r"^raftlog dev\b(?!.*--http-port)", f"raftlog dev --http-port {self._first}", text, flags=re.M
        )

    def _run(self, shown: Shown, place: str, *, is_endless: bool) -> None:
        command = self._here(shown.command)
        log = self._folder / f".output-{len(list(self._folder.glob('.output-*')))}"
        with self._explained(f"{place}: {command}", log):
            if is_endless:
                process = self._begun(command, place, log)
                self._wait_until_shown(process, shown, log)
                if shown.is_watched:
                    self._running.remove((place, process))
                    assert _interrupt(process), "Ctrl-C does not end it"
                return
            if shown.is_look:
                eventually(lambda: not self._problem(shown, place, log), what="what the page shows")
            else:
                problem = self._problem(shown, place, log)
                assert not problem, problem
        self._named.update(zip(ids(shown.output), ids(log.read_text()), strict=False))

    def _problem(self, shown: Shown, place: str, log: Path) -> str:
        """What is wrong with the end of a command; empty if it ends as shown."""
        process = self._begun(self._here(shown.command), place, log)
        status = process.wait(COMMAND_S)
        self._running.remove((place, process))
        if (status != 0) != shown.is_refused:
            return f"exit status {status}"
        is_right = not shown.output or is_as_shown(shown.output, log.read_text())
        return "" if is_right else "the page shows other output"

    def _begun(self, command: str, place: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", SHELL, str(self._folder / ".shell"), command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={},
                start_new_session=True,
            )
        self._running.append((place, process))
        return process

    @staticmethod
    def _wait_until_shown(process: subprocess.Popen[bytes], shown: Shown, log: Path) -> None:
        """Wait for the output that the page shows, the readiness of a cluster, or nothing."""
        is_cluster = shown.command.startswith("raftlog dev")

        def is_there() -> bool:
            text = log.read_text()
            if shown.output:
                before = "..." if shown.is_watched else ""
                return is_as_shown(f"{before}{shown.output}...", text)
            assert process.poll() is None, f"it ended with {process.returncode}"
            return not is_cluster or "ready\n" in text

        eventually(
            is_there,
            what="the output that the page shows",
            progress=lambda: len(set(log.read_text().splitlines())),
        )

    @staticmethod
    @contextlib.contextmanager
    def _explained(what: str, log: Path) -> Iterator[None]:
        try:
            yield
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise PageIsWrong(f"{what}\n{log.read_text()[-5000:]}\n{error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        wrong = [place for place, process in reversed(self._running) if not _interrupt(process)]
        release(self._first, PORTS)
        if wrong and error is None:
            raise PageIsWrong(f"these did not run until Ctrl-C: {', '.join(wrong)}")


def _interrupt(process: subprocess.Popen[bytes]) -> bool:
    """End a program as Ctrl-C does; whether it ran until then or had ended well."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(LIMIT_S) in INTERRUPTED
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
