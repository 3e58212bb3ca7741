"""Runs the workers of one client: all begin and end together."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final, NamedTuple

from raftlog.client.admin import AsyncTopics
from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.options import ConsumerOptions
from raftlog.client.delayed import DelayedReceipt
from raftlog.client.receipts import Receipt
from raftlog.client.session import Session
from raftlog.client.worker.calls import Calls
from raftlog.client.worker.core import WorkerCore
from raftlog.client.worker.failures import Failures
from raftlog.client.worker.options import WorkerOptions
from raftlog.records.builder import Record

DEFAULTS: Final = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Registered(NamedTuple):
    """A decorated function with its options: a worker that ``run`` will start."""

    options: WorkerOptions
    make_calls: Callable[[], Calls]


class Workers:
    """The running workers. All calls are on the loop of the session."""

    def __init__(
        self,
        session: Session,
        topics: AsyncTopics,
        make_consumer: Callable[[ConsumerOptions], ConsumerCore],
        send: Callable[..., Awaitable[Receipt]],
        send_later: Callable[..., Awaitable[DelayedReceipt]],
    ) -> None:
        self._session = session
        self._topics = topics
        self._make_consumer = make_consumer
        self._send = send
        self._send_later = send_later
        self._cores: list[WorkerCore] = []
        self._is_stopping = False

    async def run(self, registered: Sequence[Registered]) -> BaseException | None:
        """Handle records until ``stop``; returns the error that ended a worker, such as ``TopicNotFound``."""
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
        """Begin no more calls; ``run`` returns once the running calls end."""
        self._is_stopping = True
        for core in self._cores:
            core.stop()

    async def _run_one(self, worker: Registered) -> BaseException | None:
        options, calls = worker.options, worker.make_calls()
        try:
            failures = Failures(options, self._append, self._session.rng)
            await failures.make_topics(self._topics)
            if self._is_stopping:
                return None
            consumer = self._make_consumer(options.consumer)
            await consumer.begin()
            core = WorkerCore(options, consumer, failures, calls, self._session.clock)
            self._cores.append(core)
            return await core.run()
        finally:
            calls.close()
            self.stop()  # if one worker ends, all end

    async def _append(self, topic: str, partition: int, record: Record, delay_ms: int) -> None:
        time_ms = record.timestamp_ms
        known_ms = time_ms if time_ms is not None and time_ms >= 0 else None
        send = partial(self._send_later, delay=f"{delay_ms}ms") if delay_ms else self._send
        await send(
            topic,
            record.value,
            key=record.key,
            partition=partition,
            headers=record.headers,
            timestamp=known_ms,
        )


@contextmanager
def stopped_by_signals(stop: Callable[[], None], asked: bool | None) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP call ``stop`` during the block, in the main thread only.

    A second SIGINT or SIGTERM has its usual effect. A second SIGHUP has no effect: the shell and the kernel
    may both send SIGHUP when a terminal is closed. With ``asked`` True all three signals call ``stop``, with
    None only signals for which the application has no handler, with False no signal. A handler that the
    application installs during the block stays installed, and SIGHUP stays ignored under ``nohup``.
    """
    if asked is False or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGHUP:
            signal.signal(number, before[signal.Signals(number)])
        stop()

    before = {number: signal.getsignal(number) for number in DEFAULTS}
    taken = [number for number, default in DEFAULTS.items() if asked or before[number] == default]
    taken = [number for number in taken if number != signal.SIGHUP or before[number] != signal.SIG_IGN]
    for number in taken:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is handle:
                signal.signal(number, before[number])
