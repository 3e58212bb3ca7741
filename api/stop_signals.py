"""What ends a broker, and a cluster of ``raftlog dev``, in an orderly way.

Decides: which signals do. Leaves to others: what an orderly end is (``server``, ``cli.local``).
"""

from __future__ import annotations

import os
import signal
import threading


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, with which a terminal ends; ``nohup`` ignores that, and so it stays."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGINT, *(() if is_ignored else (signal.SIGHUP,)))


def stop_with_stdin() -> None:
    """Send this process SIGTERM when its standard input ends: the program that started it has gone."""

    def watch() -> None:
        try:
            while os.read(0, 4096):
                pass
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stdin", daemon=True).start()
