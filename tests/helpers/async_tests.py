"""Decorators for tests that are coroutines: on an event loop of their own, in real or in virtual time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import uvloop

from tests.helpers.virtual_time import run_virtual

Arguments = ParamSpec("Arguments")
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
