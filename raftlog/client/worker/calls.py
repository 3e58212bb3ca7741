"""Calls of the user's function: in threads, or as coroutines of the user's event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from raftlog.client.messages import Message


class Calls(Protocol):
    """How a worker calls its function."""

    async def __call__(self, message: Message) -> BaseException | None:
        """Raises what the function raises; returns what must end the process, such as ``SystemExit``.

        An event loop would end on the way if that were raised.
        """

    def close(self) -> None:
        """No more calls will begin."""


class ThreadCalls:
    """Calls of a function, each in a thread of a pool."""

    def __init__(self, function: Callable[[Message], object], concurrency: int) -> None:
        self._function = function
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="raftlog-worker")

    async def __call__(self, message: Message) -> BaseException | None:
        """See ``Calls``."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._guarded, message)

    def _guarded(self, message: Message) -> BaseException | None:
        try:
            self._function(message)
        except Exception:
            raise
        except BaseException as error:
            return error
        return None

    def close(self) -> None:
        """See ``Calls``. Calls that have begun go on."""
        self._pool.shutdown(wait=False)


class CoroutineCalls:
    """Calls of a coroutine function, each as a task of the user's loop."""

    def __init__(
        self, function: Callable[[Message], Awaitable[object]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._loop = loop

    async def __call__(self, message: Message) -> BaseException | None:
        """See ``Calls``."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._guarded(message), self._loop))

    async def _guarded(self, message: Message) -> BaseException | None:
        try:
            await self._function(message)
        except asyncio.CancelledError as error:
            return error  # the user's loop is ending
        return None

    def close(self) -> None:
        """See ``Calls``."""


def check_function(function: object, *, wants_coroutine: bool) -> None:
    """Raises ``TypeError`` for a function of the other client."""
    if not callable(function):
        raise TypeError(f"{function!r} is not a function of a message")
    if inspect.iscoroutinefunction(function) is not wants_coroutine:
        kind, other = ("an async def", "raftlog") if wants_coroutine else ("a plain", "raftlog.aio")
        raise TypeError(
            f"{function!r}: this client calls {kind} function; {other}.Client calls the other kind"
        )
