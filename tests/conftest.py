"""What holds for every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

# A shell's background job ignores SIGINT, and all processes that it starts do. Ctrl-C is tested all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the neighbours on this machine, not of the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _signal_handlers_are_left_alone() -> Iterator[None]:
    """A handler that outlives its test takes the Ctrl-C of a later one."""
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    yield
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == handlers
