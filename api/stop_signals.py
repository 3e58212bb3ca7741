"""What ends a broker, a cluster of ``raftlog dev`` and every other command in an orderly way.

Decides: which signals do. Leaves to others: what an orderly end is (``server``, ``cli``).
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, with which a terminal ends; ``nohup`` ignores that, and so it stays."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if is_ignored else (signal.SIGHUP,)))


_received: list[int] = []  # signals that interrupted this process in place of Ctrl-C


def interrupt_on_signals() -> None:
    """From now on SIGTERM and SIGHUP interrupt this process as Ctrl-C does; ``nohup`` stays."""
    for number in stop_signals():
        if number != signal.SIGINT:
            signal.signal(number, _interrupt)


def interruption_code() -> int:
    """The exit code of an interrupted command: 128 and the number of the signal, as shells report."""
    return 128 + (_received[-1] if _received else signal.SIGINT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP and number in _received:  # the shell and the kernel may both send SIGHUP
        return
    _received.append(number)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.SIG_DFL:  # no command runs yet
        os._exit(interruption_code())
    if not callable(handler):  # a job in the background ignores SIGINT
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def stop_with_stdin() -> None:
    """Send this process SIGTERM when its standard input ends: the program that started it has gone."""

    def watch() -> None:
        try:
            while os.read(0, 4096):
                pass
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
