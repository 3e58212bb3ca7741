"""What holds for every test."""

from __future__ import annotations

import signal

# A shell's background job ignores SIGINT, and all processes that it starts do. Ctrl-C is tested all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)
