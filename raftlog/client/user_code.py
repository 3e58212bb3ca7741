"""Calls functions of the user: handlers, decoders, partitioners, assignors and ``on_ack``.

Decides: which exceptions and results such a function may have. Leaves to others: the consequence of a
failure. Every call of a function of the user goes through ``called`` or ``awaited``, so its caller sees
ordinary errors only:

============================================  =====================================================
the function raises                           the caller gets
============================================  =====================================================
an ``Exception``                              that exception
``StopIteration``, ``StopAsyncIteration``,    ``RuntimeError``: to coroutines and generators they
``CancelledError``, ``GeneratorExit``         mean something else
one whose ``__class__`` raises                ``RuntimeError``: ``isinstance`` fails for it
``SystemExit``, ``KeyboardInterrupt``, ...    ``ProcessEnd``, whose ``reason`` they are
============================================  =====================================================

A result whose work has not been done, such as a coroutine or a ``map``, is a ``TypeError``. The texts of the
user's objects are read by ``described`` and ``shown``, since ``__str__`` and ``__repr__`` may raise as well.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Final, TypeVar

Result = TypeVar("Result")

TEXT_CHARACTERS_MAX: Final = 2_000
_MISLEADING: Final = (
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    GeneratorExit,
    concurrent.futures.CancelledError,  # a future that gets it counts as cancelled
)
_UNDONE: Final = (Awaitable, Generator, AsyncGenerator, concurrent.futures.Future, map, filter)


class ProcessEnd(RuntimeError):
    """A function of the user raised an exception that ends a process, such as ``SystemExit``."""

    def __init__(self, what: str, reason: BaseException) -> None:
        super().__init__(f"{what} raised {described(reason)}")
        self.reason = reason


def called(what: str, function: Callable[..., Result], /, *args: object) -> Result:
    """Call a function of the user. Raises only subclasses of ``Exception``. ``what`` names the function."""
    try:
        result = function(*args)
    except _MISLEADING as error:
        raise _renamed(what, error) from error
    except Exception as error:
        _check_kind(what, error)
        raise
    except BaseException as error:
        raise ProcessEnd(what, error) from error
    check_done(what, result)
    return result


async def awaited(what: str, function: Callable[..., Awaitable[Result]], /, *args: object) -> Result:
    """Await a coroutine function of the user, as ``called`` calls a function.

    A ``CancelledError`` that the function raises by itself becomes a ``RuntimeError``; a cancellation of the
    task becomes a ``ProcessEnd``.
    """
    try:
        result = await function(*args)
    except _MISLEADING as error:
        raise (ProcessEnd(what, error) if is_cancelled() else _renamed(what, error)) from error
    except Exception as error:
        _check_kind(what, error)
        raise
    except BaseException as error:
        raise ProcessEnd(what, error) from error
    check_done(what, result)
    return result


def described(error: BaseException) -> str:
    """The type and the text of an exception, even if its ``__str__`` raises."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """The text of an exception, even if its ``__str__`` raises."""
    return _text(str, error)


def shown(value: object) -> str:
    """``repr`` of an object of the user, even if its ``__repr__`` raises."""
    return _text(repr, value)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception of the user, unless it refuses notes, as a frozen dataclass does."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def is_cancelled() -> bool:
    """Whether the running task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_done(what: str, result: object) -> None:
    """Raise ``TypeError`` for a result whose work has not been done, such as a coroutine."""
    kind = type(result)
    if not issubclass(kind, _UNDONE):
        return
    if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
        result.close()  # else Python warns later that it was never awaited
    raise TypeError(
        f"{what} returned a {kind.__name__}, whose work may not be done: do the work before it returns"
    )


def _check_kind(what: str, error: Exception) -> None:
    try:
        isinstance(error, RuntimeError)
    except BaseException:  # handlers and logs check the type of the error, too
        raise _renamed(what, error) from None


def _renamed(what: str, error: BaseException) -> RuntimeError:
    return RuntimeError(f"{what} raised {described(error)}")


def _text(convert: Callable[[object], str], value: object) -> str:
    """At most ``TEXT_CHARACTERS_MAX`` characters. Characters that UTF-8 cannot encode are escaped."""
    try:
        return convert(value)[:TEXT_CHARACTERS_MAX].encode(errors="backslashreplace").decode()
    except BaseException as error:
        return f"<{convert.__name__}() of this {type(value).__name__} raises {type(error).__name__}>"
