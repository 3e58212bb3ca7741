"""Reuses freed memory while a broker is busy, and returns it to the system soon afterwards.

Decides: what glibc does with freed memory. By default glibc returns a large block at once, and the kernel has
to clear the pages of the next block. For a fetch of some megabytes, this takes longer than reading and
sending them. With another C library this module changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
from collections.abc import Callable
from typing import Final

RETURN_S: Final = 5.0
GROWN_BYTES: Final = 4 << 20  # less is not worth the page faults that follow, which take 0.3 % of a core

# Constants of malloc.h:
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

_OPTIONS: Final = (
    # Fetches of up to 4 MiB. Larger blocks, such as pages of JSON, grow during encoding and would leave gaps.
    (_M_MMAP_THRESHOLD, (4 << 20) + (128 << 10)),
    (_M_TRIM_THRESHOLD, 16 << 20),
    (_M_ARENA_MAX, 1),  # a block that a thread fills and the loop frees can serve any thread
)


def use_again() -> None:
    """Make glibc keep freed memory for later blocks. Call this before the process starts its first thread."""
    with contextlib.suppress(OSError, AttributeError):
        change = ctypes.CDLL(None).mallopt
        for option, value in _OPTIONS:
            change(option, value)


def give_back() -> None:
    """Return freed memory to the system at once. Meant for rare work that needs much memory."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Returning:
    """Returns unused freed memory to the system, until ``stop``.

    Checks every ``pause_s``, in a thread, whether the process holds more freed memory than it has to.
    Memory in use does not count: a return during the peak of a load is followed by a return after the load.
    A return takes a millisecond for 16 MB. If no descriptor or thread is available, the next check tries
    again.
    """

    def __init__(self, pause_s: float = RETURN_S) -> None:
        self.looks = 0
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._trim = None
        self._kept_bytes = 0  # resident, not in use, and not returned by the last return
        with contextlib.suppress(OSError, AttributeError):
            _resident_bytes()  # where the memory cannot be read, none is returned
            self._trim = ctypes.CDLL(None).malloc_trim
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._pause_s, self._begin)

    def _begin(self) -> None:
        if self._trim is not None:
            self.looks += 1
            self._handle = self._wait()
            with contextlib.suppress(OSError, RuntimeError):
                self._loop.run_in_executor(None, self._return_unused, self._trim)

    def _return_unused(self, trim: Callable[[int], object]) -> None:
        with contextlib.suppress(OSError):
            used, resident = _used_bytes(), _resident_bytes()
            if resident - used <= self._kept_bytes + GROWN_BYTES:
                self._kept_bytes = min(self._kept_bytes, resident - used)
                return
            trim(0)
            now = _resident_bytes()
            # Other threads allocate and free memory during a return, so the next check returns memory again,
            # until a return finds little. Blocks that were in use before, and are not now, were not returned.
            found_little = resident - now < GROWN_BYTES
            self._kept_bytes = now - max(used, _used_bytes()) if found_little else 0


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _used_bytes() -> int:
    """Return the bytes of this process's blocks in use, or 0 before glibc 2.33."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return 0
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def _resident_bytes() -> int:
    """Return the resident memory of this process in bytes, on Linux."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
