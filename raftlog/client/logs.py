"""Hands log records of the client's event loop to another thread, which runs the log handlers.

Decides: on which thread handlers run. A handler belongs to the application: it may wait for a lock, or for
room in a producer of this very client, which only the event loop can make. So log records of the event loop's
thread are handed to another thread. At most ``RECORDS_MAX`` log records wait there; further log records are
dropped.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from raftlog.client.forks import mark_in_children

RECORDS_MAX: Final = 1_000
FLUSH_S: Final = 1.0
# Loggers of libraries and of ``logging.captureWarnings`` that the client's thread uses, too.
_OTHERS: Final = ("asyncio", "aiohttp.client", "aiohttp.internal", "concurrent.futures", "py.warnings")
_here = threading.local()


class _Elsewhere:
    """A thread that runs log handlers. It starts with the first log record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begin_anew()
        mark_in_children(self)

    def _begin_anew(self) -> None:
        self._acts = queue.Queue[Callable[[], object]](RECORDS_MAX)
        self._thread: threading.Thread | None = None

    def end_in_child(self) -> None:
        """Forget the thread, which is in the parent process; the next log record starts another thread."""
        self._lock = threading.Lock()
        self._begin_anew()

    def hand_over(self, act: Callable[[], object]) -> None:
        """Call ``act`` on the other thread, soon. Drop the call if too many calls wait there."""
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="raftlog-log", daemon=True)
                    self._thread.start()
        with contextlib.suppress(queue.Full):
            self._acts.put_nowait(act)

    def flush(self) -> None:
        """Wait until all calls handed over before are done, for at most ``FLUSH_S``."""
        if self._thread is not None and threading.current_thread() is not self._thread:
            done = threading.Event()
            self.hand_over(done.set)
            done.wait(FLUSH_S)

    def _run(self) -> None:
        acts = self._acts
        while True:
            act = acts.get()
            with contextlib.suppress(BaseException):  # of a handler; no caller could receive the error
                act()


_elsewhere = _Elsewhere()
flush = _elsewhere.flush


def hand_over_from_here() -> None:
    """Run log handlers of the calling thread, which runs a client's event loop, on another thread."""
    _here.is_of_client = True
    for name in _OTHERS:
        client_logger(name)


def is_client_thread() -> bool:
    """Whether this is the thread of a client's event loop, which must not wait."""
    return getattr(_here, "is_of_client", False)


def client_logger(name: str = "raftlog.client") -> logging.Logger:
    """A logger that hands its records over on threads that have called ``hand_over_from_here``."""
    logger = logging.getLogger(name)
    logger.addFilter(_stays_here)
    return logger


def _stays_here(record: logging.LogRecord) -> bool:
    """Whether this thread runs the handlers itself; if not, hand the record over. A filter for loggers."""
    if not is_client_thread():
        return True
    _elsewhere.hand_over(partial(logging.getLogger(record.name).handle, record))
    return False
