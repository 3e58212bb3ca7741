"""Syncs of files by the kernel, without a thread that waits: io_submit(2) with IOCB_CMD_FDSYNC, on Linux.

An eventfd(2), which an event loop can watch, reports the end of each sync. The layout is that
of ``linux/aio_abi.h`` on 64-bit little-endian machines. The calls never wait: the kernel's own workers do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from typing import Final

SYNCS_AT_ONCE: Final = 64
_SETUP, _SUBMIT, _EVENTS = range(3)
_CALLS: Final = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}  # io_setup, io_submit, io_getevents
_FDSYNC: Final = 3
_TELLS_EVENTFD: Final = 1


class _Request(ctypes.Structure):
    """The C structure ``struct iocb``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """The C structure ``struct io_event``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class LinuxAio:
    """A kernel context for at most ``at_once`` syncs.

    Raises ``OSError`` if the kernel or a sandbox offers none. For use by one thread. The kernel frees the
    context with the process, and then waits for unfinished syncs.
    """

    def __init__(self, at_once: int = SYNCS_AT_ONCE) -> None:
        numbers = _CALLS.get(platform.machine() if sys.platform == "linux" else "")
        if numbers is None:
            raise OSError(errno.ENOSYS, "the numbers of the io_* system calls are unknown on this machine")
        self._numbers = [*map(ctypes.c_long, numbers)]
        # PyDLL keeps the interpreter lock for a call that does not wait: another thread could keep it for 5
        # ms.
        self._syscall = ctypes.PyDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        self._at_once = ctypes.c_long(at_once)
        self._call(_SETUP, self._at_once, ctypes.byref(self._context))
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._requests = [
            _Request(data=slot, opcode=_FDSYNC, flags=_TELLS_EVENTFD, eventfd=self.eventfd)
            for slot in range(at_once)
        ]
        self._pointers = [
            (ctypes.POINTER(_Request) * 1)(ctypes.pointer(request)) for request in self._requests
        ]
        self._events = (_Event * at_once)()
        self._free = list(range(at_once))
        self._ended: dict[int, Callable[[int], None]] = {}

    def begin(self, descriptor: int, ended: Callable[[int], None]) -> bool:
        """Begin to sync the data of a file; ``deliver`` calls ``ended`` with 0 or the error number.

        The caller may close the descriptor after this call. Returns False if the kernel refuses: then no sync
        has begun.
        """
        if not self._free:
            return False
        slot = self._free[-1]
        self._requests[slot].descriptor = descriptor
        if self._syscall(self._numbers[_SUBMIT], self._context, _ONE, self._pointers[slot]) != 1:
            return False
        self._free.pop()
        self._ended[slot] = ended
        return True

    def deliver(self) -> None:
        """Report all finished syncs. Call it when ``eventfd`` is readable."""
        try:
            os.eventfd_read(self.eventfd)
        except BlockingIOError:
            return  # the previous call has reported these syncs, too
        count = self._call(_EVENTS, self._context, _NONE, self._at_once, self._events, _NOW)
        for event in self._events[:count]:
            slot = event.data
            self._free.append(slot)
            self._ended.pop(slot)(-event.result)

    def _call(self, which: int, *arguments: object) -> int:
        result = int(self._syscall(self._numbers[which], *arguments))
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result


_ONE, _NONE = ctypes.c_long(1), ctypes.c_long(0)
_NOW = (ctypes.c_long * 2)(0, 0)  # a timeout of 0
