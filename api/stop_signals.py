"""Handles the signals that end brokers, ``raftlog dev`` and all other commands in an orderly way.

Decides: which signals end a process. Leaves to others: the steps of an orderly end (``server``, ``cli``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a process: SIGTERM, SIGINT, and SIGHUP, which a closed terminal sends.

    Under ``nohup``, SIGHUP is not among them.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if is_ignored else (signal.SIGHUP,)))


class Terminal:
    """The controlling terminal of this process, whose end sends SIGHUP."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()

    def look(self) -> None:
        """Note whether there is a terminal now. A process that its shell disowned outlives its terminal."""
        self._was_there = _has_terminal()

    @property
    def is_lost(self) -> bool:
        """True if there was a terminal at the last look and there is none now."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


_received: list[int] = []  # signals that interrupted this process in place of Ctrl-C
_REPEATED_AFTER_S = 0.01


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP interrupt this process like Ctrl-C; under ``nohup`` SIGHUP stays ignored.

    Python drops an exception that is raised in a finalizer or in the callback of a weak reference, and
    ``KeyboardInterrupt`` with it. A dropped interruption is raised again shortly afterwards.
    """
    for number in stop_signals():
        if number != signal.SIGINT:
            signal.signal(number, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt_again)
    sys.unraisablehook = _note_unraisable


def interruption_code() -> int:
    """Return the exit code of an interrupted command: 128 plus the number of the signal, as shells report."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP and number in _received:  # the shell and the kernel may both send SIGHUP
        return
    _received.append(number)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_DFL:  # no command runs yet
        os._exit(interruption_code())
    if not callable(handler):  # a background job ignores SIGINT
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def _note_unraisable(dropped: UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _REPEATED_AFTER_S)
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_again(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def stop_with_stdin() -> None:
    """Send this process SIGTERM when its standard input ends, which means that the program that started it
    has ended.
    """

    def watch() -> None:
        try:
            while os.read(0, 4096):
                pass
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
