"""Waits for a condition in tests, with one limit for all waits on real processes.

Decides: how long a condition may take before a test fails, and what an expired wait prints: the state of
every object registered with ``describe_on_expiry``, and the stacks of this process. Leaves to others: the
state of an object (``chaos.cluster`` registers clusters).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

LIMIT_S: Final = 60.0
"""The limit of a wait in seconds: enough for any condition, even on a busy machine."""
POLL_S: Final = 0.02
POLL_MAX_S: Final = 0.1
"""The seconds between two checks of a condition after the first second: each check costs CPU time."""

Found = TypeVar("Found")


class Described(Protocol):
    """An object whose state explains an expired wait."""

    def state(self) -> str:
        """The state as text. Takes seconds at most, and may raise."""


_described: WeakSet[Described] = WeakSet()


def describe_on_expiry(one: Described) -> None:
    """Let expired waits print the state of this object, as long as the object exists."""
    _described.add(one)


def eventually(
    holds: Callable[[], Found | None], *, what: str, progress: Callable[[], object] | None = None
) -> Found:
    """Wait until the result of ``holds`` is true, and return this result. An ``OSError`` counts as false.

    Raises ``AssertionError`` after ``LIMIT_S``, with all registered states and stacks. To wait for the end of
    long work, pass ``progress``: each change of its result restarts the time limit.
    """
    began = time.monotonic()
    deadline = began + LIMIT_S
    seen: object = None
    before: object = None
    while True:
        try:
            found = holds()
        except OSError as error:
            seen = error
        else:
            if found:
                return found
            seen = found
        if progress is not None and (now := progress()) != before:
            before, deadline = now, time.monotonic() + LIMIT_S
        if time.monotonic() > deadline:
            raise AssertionError(expired(what, seen))
        time.sleep(min(max(POLL_S, 0.1 * (time.monotonic() - began)), POLL_MAX_S))


def expired(what: str, seen: object) -> str:
    """The message of a wait that has expired."""
    return f"{what}: not within {LIMIT_S:g} s; last seen: {seen!r}\n{states()}\n{stacks()}"


def states() -> str:
    """The states of all registered objects that still exist."""
    found = []
    for one in list(_described):
        try:
            found.append(one.state())
        except Exception as error:  # an unreadable state must not hide the expired wait
            found.append(f"no state of {one!r}: {error!r}")
    return "\n".join(text for text in found if text)


def stacks() -> str:
    """The stacks of all threads and asyncio tasks of this process."""
    text = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}:\n")
        traceback.print_stack(frame, file=text)
    for task in unfinished_tasks():
        task.print_stack(file=text)
    return text.getvalue()


def unfinished_tasks() -> list[asyncio.Task[object]]:
    """The tasks of all event loops.

    Another thread's loop does not list its tasks, and the garbage collector does not list frozen tasks.
    """
    tasks = {found for found in gc.get_objects() if isinstance(found, asyncio.Task)}
    with contextlib.suppress(RuntimeError):  # no loop runs on this thread
        tasks |= asyncio.all_tasks()
    return [task for task in tasks if not task.done()]
