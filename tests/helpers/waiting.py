"""Waits of tests for a condition, with one limit, where threads, sockets or processes of a machine are real.

An expired wait is an error, whatever the machine does: it says what it waited for, what it saw last, and what
every thread and task does.
"""

from __future__ import annotations

import asyncio
import gc
import io
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

LIMIT_S: Final = 60.0
POLL_S: Final = 0.002

Found = TypeVar("Found")


async def until(holds: Callable[[], Found], *, what: str) -> Found:
    """The result of ``holds`` once it is true. Raises ``AssertionError`` after ``LIMIT_S``."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + LIMIT_S
    while not (found := holds()):
        if loop.time() > ends_s:
            raise AssertionError(expired(what, found))
        await asyncio.sleep(POLL_S)
    return found


def eventually(holds: Callable[[], Found], *, what: str) -> Found:
    """``until`` for a test that blocks."""
    ends_s = time.monotonic() + LIMIT_S
    while not (found := holds()):
        if time.monotonic() > ends_s:
            raise AssertionError(expired(what, found))
        time.sleep(POLL_S)
    return found


@asynccontextmanager
async def limited(what: str) -> AsyncIterator[None]:
    """Raises ``AssertionError`` when the block takes longer than ``LIMIT_S``."""
    expiry: list[str] = []

    def expire() -> None:
        expiry.append(expired(what, "nothing"))  # while the block still waits
        limit.reschedule(loop.time())

    loop = asyncio.get_running_loop()
    timer = loop.call_later(LIMIT_S, expire)
    try:
        async with asyncio.timeout(None) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(expiry[0]) from error
    finally:
        timer.cancel()


def expired(what: str, seen: object) -> str:
    """The message of a wait that has expired."""
    return f"{what}: not within {LIMIT_S:g} s; last seen: {seen!r}\n{stacks()}"


def stacks() -> str:
    """The stacks of all threads, and of the tasks of all event loops of this process."""
    text = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}:\n")
        traceback.print_stack(frame, file=text)
    for found in gc.get_objects():  # a loop of another thread cannot be asked for its tasks
        if isinstance(found, asyncio.Task) and not found.done():
            found.print_stack(file=text)
    return text.getvalue()
