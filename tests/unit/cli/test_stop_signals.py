"""A signal interrupts a command wherever its code is."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from raftlog.testing.waits import LIMIT_S

INTERRUPTED_WHERE_EXCEPTIONS_ARE_DROPPED = """
import signal, sys, time, weakref
from api.stop_signals import interrupt_on_signals, interruption_code

class Gone: pass

interrupt_on_signals()
gone = Gone()
callback = weakref.ref(gone, lambda _: signal.raise_signal(int(sys.argv[1])))
try:
    del gone
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(interruption_code())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_callback_of_a_weak_reference_interrupts(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHERE_EXCEPTIONS_ARE_DROPPED, str(int(number))],
        capture_output=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (128 + number, b"")
