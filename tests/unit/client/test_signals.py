"""Signals are the application's: a worker takes them only where nobody else has, or where it is asked to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from raftlog.client.worker.run import DEFAULTS, stopped_by_signals
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, whole_broker


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    """Signals as in a new process, and after the test as before it."""
    before = {number: signal.signal(number, default) for number, default in DEFAULTS.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def own(number: int, frame: FrameType | None) -> None:
    """A handler of the application."""


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in DEFAULTS]


# requirement: P6
@pytest.mark.parametrize(
    ("asked", "taken_of_python", "taken_of_the_application"),
    [(None, True, False), (True, True, True), (False, False, False)],
)
def test_handlers_of_the_application_stay(
    asked: bool | None, taken_of_python: bool, taken_of_the_application: bool
) -> None:
    signal.signal(signal.SIGTERM, own)
    before = handlers()
    with stopped_by_signals(lambda: None, asked):
        is_taken = [now is not then for now, then in zip(handlers(), before, strict=True)]
    assert is_taken == [taken_of_python, taken_of_the_application, taken_of_python]
    assert handlers() == before


def test_a_handler_that_is_installed_meanwhile_stays() -> None:
    with stopped_by_signals(lambda: None, None):
        signal.signal(signal.SIGTERM, own)
    assert handlers() == [signal.default_int_handler, own, signal.SIG_DFL]


def test_the_first_signal_stops_and_the_second_has_its_usual_effect() -> None:
    stops: list[None] = []
    with stopped_by_signals(lambda: stops.append(None), None):
        os.kill(os.getpid(), signal.SIGINT)
        assert len(stops) == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


# requirement: P6
def test_a_closed_terminal_stops_and_kills_nothing_however_often_it_says_so() -> None:
    """The shell sends SIGHUP to its jobs, and the kernel again to those in the foreground."""
    stops: list[None] = []
    with stopped_by_signals(lambda: stops.append(None), None):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
    assert len(stops) == 3


def test_nohup_stays() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stopped_by_signals(lambda: None, asked=True):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


async def test_the_asynchronous_client_leaves_signals_to_the_application() -> None:
    async with whole_broker(partitions=1) as whole, VirtualClient(whole.url) as client:
        handled: list[object] = []

        @client.worker(TOPIC, group="g")
        async def handle(message: object) -> None:
            handled.append(handlers())

        before = handlers()
        await client.send(TOPIC, "1")
        running = asyncio.create_task(client.run())
        await eventually(lambda: bool(handled))
        client.stop()
        await running
        assert handled == [before]
