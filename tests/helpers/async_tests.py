"""Event loops of tests: for coroutines, in real or virtual time, and beside tests that block."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import uvloop

from tests.helpers.virtual_time import run_virtual

Arguments = ParamSpec("Arguments")
Resource = TypeVar("Resource")
Test = Callable[Arguments, Coroutine[Any, Any, None]]
Make = Callable[..., AbstractAsyncContextManager[Resource]]
Decorator = Callable[[Callable[Concatenate[Resource, ...], Coroutine[Any, Any, None]]], Callable[..., None]]


def in_real_time(test: Test[Arguments]) -> Callable[Arguments, None]:
    """Run the test with ``asyncio.run``."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def on_both_loops(test: Test[Arguments]) -> Callable[Arguments, None]:
    """Run the test twice: on asyncio's event loop and on uvloop's."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))
        uvloop.run(test(*args, **kwargs))

    return run


def in_virtual_time_with(make: Make[Resource]) -> Decorator[Resource]:
    """Run the test on a ``VirtualLoop`` within a resource, which is its first argument.

    Parameters of ``make`` without a default are fixtures or parameters of the test.
    """
    return _within(make, run_virtual)


def on_both_loops_with(make: Make[Resource]) -> Decorator[Resource]:
    """Run the test twice, on asyncio's event loop and on uvloop's, within a resource, its first argument."""
    return _within(make, asyncio.run, uvloop.run)


def _within(make: Make[Resource], *loops: Callable[[Coroutine[Any, Any, None]], None]) -> Decorator[Resource]:
    needed = [each for each in inspect.signature(make).parameters.values() if each.default is each.empty]

    def decorate(
        test: Callable[Concatenate[Resource, ...], Coroutine[Any, Any, None]],
    ) -> Callable[..., None]:
        own = [*inspect.signature(test).parameters.values()][1:]
        named = {each.name: each.replace(kind=each.KEYWORD_ONLY) for each in (*needed, *own)}

        @functools.wraps(test)
        def run(**given: object) -> None:
            async def within() -> None:
                async with make(**{each.name: given[each.name] for each in needed}) as resource:
                    await test(resource, **{each.name: given[each.name] for each in own})

            for loop in loops:
                loop(within())

        run.__signature__ = inspect.Signature([*named.values()])  # type: ignore[attr-defined]
        return run

    return decorate


async def _end_tasks() -> None:
    """Cancel all other tasks of the event loop, as ``asyncio.run`` does at its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def beside(resource: AbstractAsyncContextManager[Resource]) -> Iterator[Resource]:
    """A resource on an event loop and a thread of its own, for a test that blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        found = asyncio.run_coroutine_threadsafe(resource.__aenter__(), loop).result()
        try:
            yield found
        finally:
            asyncio.run_coroutine_threadsafe(resource.__aexit__(None, None, None), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
