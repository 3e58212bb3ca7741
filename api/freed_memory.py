"""Freed memory: used again while a broker is busy, returned to the system soon afterwards.

Decides: what glibc does with it. By default glibc returns a large block at once, and the kernel has to clear
the pages of the next one: for a fetch of some megabytes that takes longer than to read and to send them. With
another C library nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from typing import Final

RETURN_S: Final = 5.0

# Of malloc.h:
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_OPTIONS: Final = (
    # Fetches of up to 4 MiB. Larger blocks, such as pages of JSON, grow while they are encoded: they would
    # leave gaps.
    (_M_MMAP_THRESHOLD, (4 << 20) + (128 << 10)),
    (_M_TRIM_THRESHOLD, 16 << 20),
    (_M_ARENA_MAX, 1),  # a block that a thread has read into is freed by the loop, and serves any thread next
)


def use_again() -> None:
    """Keep what is freed in this process for later blocks. Before the first thread starts."""
    with contextlib.suppress(OSError, AttributeError):
        change = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS:
            change(option, value)


class Returning:
    """Returns what was not used again to the system every ``RETURN_S``, until ``stop``.

    On a thread: 16 MB take about a millisecond, and nothing at all some microseconds.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._trim = None
        with contextlib.suppress(OSError, AttributeError):
            self._trim = ctypes.CDLL(None).malloc_trim
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.call_later(RETURN_S, self._begin)

    def _begin(self) -> None:
        if self._trim is not None:
            self._loop.run_in_executor(None, self._trim, 0)
            self._handle = self._wait()
