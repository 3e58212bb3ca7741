"""Calls the user's function: in threads, or as coroutines on the user's event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, Protocol

from raftlog.client.messages import Message
from raftlog.client.user_code import ProcessEnd, awaited, called

WHAT: Final = "the handler"
THREADS_END: Final = "Python starts no threads after the main thread has ended; let it wait for `run`"
LOOP_CLOSED: Final = "the event loop on which the handler was decorated is closed; decorate it in each loop"


class Calls(Protocol):
    """Calls a worker's function, in threads or as coroutines."""

    async def __call__(self, message: Message) -> None:
        """Call the function. Raises only subclasses of ``Exception``, see ``raftlog.client.user_code``.

        Raises ``ProcessEnd`` also if the call cannot begin: then the record does not count as failed.
        """

    def close(self) -> None:
        """Begin no more calls."""


class ThreadCalls:
    """Calls a function in threads of a pool."""

    def __init__(self, function: Callable[[Message], object], concurrency: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="raftlog-worker")

    async def __call__(self, message: Message) -> None:
        """Call the function in a thread of the pool; see ``Calls``."""
        loop = asyncio.get_running_loop()
        run = copy_context().run  # the span of the call is current in the function
        try:
            call = loop.run_in_executor(self._pool, run, called, WHAT, self._function, message)
        except RuntimeError as error:
            raise _not_begun(error, THREADS_END) from error
        await call

    def close(self) -> None:
        """Begin no more calls; see ``Calls``. Running calls continue."""
        self._pool.shutdown(wait=False)


class CoroutineCalls:
    """Calls a coroutine function, each call as a task of the user's loop."""

    def __init__(
        self, function: Callable[[Message], Awaitable[object]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._loop = loop

    async def __call__(self, message: Message) -> None:
        """Call the coroutine function on the user's loop; see ``Calls``."""
        call = awaited(WHAT, self._function, message)
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:
            call.close()
            raise _not_begun(error, LOOP_CLOSED) from error
        await asyncio.wrap_future(future)

    def close(self) -> None:
        """Do nothing: the loop belongs to the user; see ``Calls``."""


def _not_begun(error: RuntimeError, why: str) -> ProcessEnd:
    """Return the error that ends a worker whose calls cannot begin any more."""
    reason = RuntimeError(f"the handler cannot be called: {why} ({error})")
    return ProcessEnd("the attempt to call the handler", reason)


def check_function(function: object, *, wants_coroutine: bool) -> None:
    """Raise ``TypeError`` for a function that only the other client can call, and for a generator."""
    if not callable(function):
        raise TypeError(f"{function!r} is not a function of a message")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} has a yield, so a call of it does nothing: remove the yield")
    if inspect.iscoroutinefunction(function) is not wants_coroutine:
        kind, other = ("an async def", "raftlog") if wants_coroutine else ("a plain", "raftlog.aio")
        raise TypeError(
            f"{function!r}: this client calls {kind} function; {other}.Client calls the other kind"
        )
