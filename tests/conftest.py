"""What holds for every test."""

from __future__ import annotations

import gc
import inspect
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.helpers.virtual_time import run_virtual

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# A shell's background job ignores SIGINT, and all processes that it starts do. Ctrl-C is tested all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Under nohup all processes that a test starts would ignore SIGHUP; with a handler here they do not.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# How long an example takes tells of the neighbours on this machine, not of the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, max_examples=40, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


# Modules and collected tests stay until the end: a collection that searched them would take half a second.
gc.disable()


def pytest_collection_finish() -> None:
    """Collections search only what the tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test in virtual time, unless a decorator has chosen another event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run_virtual(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(autouse=True)
def _signal_handlers_are_left_alone() -> Iterator[None]:
    """A handler that outlives its test takes the Ctrl-C of a later one."""
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    yield
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == handlers
