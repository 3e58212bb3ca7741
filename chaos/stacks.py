"""What a process waits for: on a signal it prints the stacks of its threads and of its tasks.

A harness sends the signal to a process that does not end, so that its output says why.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys
from types import FrameType
from typing import Final

SHOW: Final = signal.SIGUSR1


def show_on_signal() -> None:
    """From now on ``SHOW`` prints them to standard error. Call it on the main thread."""
    signal.signal(SHOW, _show)


def _show(number: int, frame: FrameType | None) -> None:
    faulthandler.dump_traceback(all_threads=True)
    for found in gc.get_objects():  # a loop of another thread cannot be asked for its tasks
        if isinstance(found, asyncio.Task) and not found.done():
            found.print_stack(file=sys.stderr)
    sys.stderr.flush()
