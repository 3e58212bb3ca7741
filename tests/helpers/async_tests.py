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


def in_virtual_time(test: Test[Arguments]) -> Callable[Arguments, None]:
    """Run the test on a ``VirtualLoop``."""

    @functools.wraps(test)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def with_resource(
    opened: Callable[[], AbstractAsyncContextManager[Resource]],
) -> Callable[[Test[Concatenate[Resource, Arguments]]], Callable[Arguments, None]]:
    """Run the test in virtual time; its first argument is an open resource."""

    def decorated(test: Test[Concatenate[Resource, Arguments]]) -> Callable[Arguments, None]:
        @functools.wraps(test)
        def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
            async def run_with_resource() -> None:
                async with opened() as resource:
                    await test(resource, *args, **kwargs)

            run_virtual(run_with_resource())

        # pytest would look for a fixture of the name of the first argument.
        signature = inspect.signature(run)
        rest = list(signature.parameters.values())[1:]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # of functions
        return run

    return decorated


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
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
