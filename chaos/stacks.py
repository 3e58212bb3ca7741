"""Prints the stacks of a process's threads and tasks when the process gets a signal.

A harness sends the signal to a process that does not end or does not respond, so that the process's output
shows the reason.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from raftlog.__main__ import COMMAND as RAFTLOG
from raftlog.__main__ import main
from raftlog.testing.waits import unfinished_tasks

SHOW: Final = signal.SIGUSR1
COMMAND: Final = (
    sys.executable,
    "-P",
    "-c",
    "from raftlog.__main__ import use_our_packages; use_our_packages(); from chaos.stacks import run; run()",
)
"""The command ``raftlog.__main__.COMMAND``, run by a process that shows its stacks."""


def show_on_signal() -> None:
    """Print the stacks to standard error on each ``SHOW`` signal. Call this on the main thread.

    The stacks of threads are printed even while the main thread is in C code, the stacks of tasks when it is
    in Python again.
    """
    signal.signal(SHOW, _show_tasks)
    faulthandler.register(SHOW, all_threads=True, chain=True)


def shows(pid: int) -> bool:
    """Return whether a process has a handler for ``SHOW``; without a handler the signal would end the
    process.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (SHOW - 1) & 1)


def ask(pid: int) -> bool:
    """Send ``SHOW`` to a process if it has a handler; return whether the signal was sent."""
    if not shows(pid):
        return False
    try:
        os.kill(pid, SHOW)
    except ProcessLookupError:
        return False
    return True


def run() -> None:
    """Run the command line in this process, after ``show_on_signal``."""
    sys.argv[0] = RAFTLOG[-1]
    show_on_signal()
    main()


def _show_tasks(number: int, frame: FrameType | None) -> None:
    for task in unfinished_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
