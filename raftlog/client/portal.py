"""Runs calls of other threads on the client's event loop, which has its own thread.

Decides: how a blocking call runs an asynchronous call. ``blocking`` keeps names, signatures and docstrings,
so that both clients have equal methods.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from raftlog.client import logs
from raftlog.client.forks import FORKED, mark_in_children
from raftlog.client.logs import client_logger
from raftlog.client.user_code import is_cancelled
from raftlog.errors import NotSent, RaftlogError

Core = TypeVar("Core")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")
CLOSED_MEANWHILE: Final = "the client was closed during this call, whose outcome is not known"
_log = client_logger()


class Portal:
    """An event loop on its own thread. Blocking calls may come from any other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="raftlog-client", daemon=True)
        self._lock = threading.Lock()
        self._is_open = True
        self._is_forked = False  # the thread is in another process
        self._pending: set[Future[Any]] = set()
        mark_in_children(self)
        self._thread.start()

    def end_in_child(self) -> None:
        """Refuse calls: the thread is in the parent process."""
        self._is_forked, self._is_open = True, False

    @property
    def is_open(self) -> bool:
        """True if calls are accepted."""
        return self._is_open

    def call(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run ``work`` on the loop and return its result. Ctrl-C cancels the work and is raised here.

        Raises ``NotSent`` if the portal is closed, ``RaftlogError`` if the portal is closed or fails during
        the call, and ``RuntimeError`` on the thread of the loop and in a process that was forked later.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call on the client's own thread would wait for itself; call it on another thread"
            )

        future = self._submit(work)
        try:
            return future.result()
        except CancelledError as error:
            raise RaftlogError(CLOSED_MEANWHILE) from error
        except BaseException:
            future.cancel()
            raise

    def end(self, close: Callable[[], Awaitable[object]]) -> None:
        """Run ``work``, which closes a part of the client.

        Does nothing if any thread has closed the client.
        """
        try:
            if self._is_open:
                self.call(close)
        except RaftlogError:
            if self._is_open:
                raise

    def iterated(self, source: AsyncGenerator[Result, None]) -> Generator[Result, None, None]:
        """Yield the values of an asynchronous generator.

        Closing this generator closes the asynchronous one; Ctrl-C closes both.
        """
        steps = _Steps(source)
        try:
            while True:
                try:
                    value = self.call(steps.next)
                except StopAsyncIteration:
                    return
                yield value
        finally:
            self.end(steps.close)

    async def awaited(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run ``work`` on the loop and await its result in a task of another event loop."""
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise RaftlogError(CLOSED_MEANWHILE) from error

    def post(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the loop soon, also from a signal handler; not after ``close``."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _submit(self, work: Callable[[], Awaitable[Result]]) -> Future[Result]:
        async def run() -> Result:
            return await work()

        if self._is_forked:
            raise RuntimeError(FORKED)
        with self._lock:
            if not self._is_open:
                raise NotSent("the client is closed")
            future = asyncio.run_coroutine_threadsafe(run(), self._loop)
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return future

    def close(self) -> None:
        """End the loop and its thread; waiting calls are cancelled."""
        if not self._is_open:
            return  # in a child process the lock may never be free
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        logs.flush()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        logs.hand_over_from_here()
        try:
            self._run_until_stopped()
            self._end_tasks()
        finally:
            with self._lock:
                self._is_open = False  # also if the loop has failed
            self._loop.close()
            for future in tuple(self._pending):
                with contextlib.suppress(InvalidStateError):  # its caller has cancelled the call meanwhile
                    future.set_exception(RaftlogError("the client's thread ended before this call"))

    def _run_until_stopped(self) -> None:
        """Run the loop. ``sys.exit`` in a function of the user, such as a decoder, does not end the loop."""
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                _log.exception("a function that the client has called tried to end the client's thread")
            else:
                return

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class _Steps(Generic[Result]):
    """The steps of an asynchronous generator, each in its own task."""

    def __init__(self, source: AsyncGenerator[Result, None]) -> None:
        self._source = source
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> Result:
        """The next value. Raises ``StopAsyncIteration`` at the end."""
        self._step = asyncio.current_task()
        return await self._source.__anext__()

    async def close(self) -> None:
        """Close the generator, once an interrupted step has ended: the step may have to end a request."""
        if self._step is not None and not self._step.done():
            if not self._step.cancelling():
                self._step.cancel()
            await asyncio.wait([self._step])
        await self._source.aclose()


class SyncProxy(Generic[Core]):
    """A blocking object that runs the methods of an asynchronous object."""

    def __init__(self, core: Core, portal: Portal) -> None:
        self._core = core
        self._portal = portal


def blocking(
    method: Callable[Concatenate[Core, Parameters], Awaitable[Result]],
) -> Callable[Concatenate[SyncProxy[Core], Parameters], Result]:
    """The method of a proxy that waits for the asynchronous method."""

    @functools.wraps(method)
    def call(proxy: SyncProxy[Core], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return proxy._portal.call(lambda: method(proxy._core, *args, **kwargs))

    return call
