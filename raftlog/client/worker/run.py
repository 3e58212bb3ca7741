"""The workers of one client: they begin and end together."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from raftlog.client.worker.calls import Calls
from raftlog.client.worker.core import WorkerCore
from raftlog.client.worker.failures import Failures
from raftlog.client.worker.options import WorkerOptions

if TYPE_CHECKING:
    from raftlog.client.client import AsyncClient


class Registered(NamedTuple):
    """A worker that will run."""

    options: WorkerOptions
    make_calls: Callable[[], Calls]


class Workers:
    """All on the loop of ``client``, which has the consumers."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._cores: list[WorkerCore] = []
        self._is_stopping = False

    async def run(self, registered: Sequence[Registered]) -> BaseException | None:
        """Handle records until ``stop``; returns what ended them instead, such as ``UnknownTopic``."""
        if not registered:
            raise ValueError("this client has no worker; decorate a function with client.worker(...) first")
        if self._cores:
            raise RuntimeError("the workers of this client run already")
        self._is_stopping = False
        runs = [self._run_one(each) for each in registered]
        try:
            ended = await asyncio.gather(*runs, return_exceptions=True)
        finally:
            self._cores.clear()
        return next((error for error in ended if error is not None), None)

    def stop(self) -> None:
        """Begin no more calls; ``run`` returns once those that have begun are over."""
        self._is_stopping = True
        for core in self._cores:
            core.stop()

    async def _run_one(self, worker: Registered) -> BaseException | None:
        options, calls = worker.options, worker.make_calls()
        try:
            failures = Failures(options, self._client.append, self._client.rng)
            await failures.make_topics(self._client.topics)
            if self._is_stopping:
                return None
            consumer = self._client.consumer_core(options.consumer)
            core = WorkerCore(options, consumer, failures, calls, self._client.clock)
            self._cores.append(core)
            return await core.run()
        finally:
            calls.close()
            self.stop()  # where one ends, all end


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call ``stop``, a second one has its usual effect. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
