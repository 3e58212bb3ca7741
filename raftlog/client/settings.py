"""Declares options of methods as keys of a TypedDict: ``**settings: Unpack[ProducerSettings]``.

A type checker reads the names and types of the options in the TypedDict; the comment of an option begins with
its default. The function that checks the options has the defaults. The methods of both clients pass the
options on, so that no method repeats them.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., object])


def settings_of(kind: type, *checks: Callable[..., object]) -> Callable[[Method], Method]:
    """Decorate a method whose ``**settings`` are the keys of ``kind``.

    The functions ``checks`` have the defaults. ``help`` lists the settings with their defaults. An unknown
    setting raises ``TypeError`` at the call, also if the method is a coroutine or a generator.
    """
    known = kind.__annotations__
    defaults = {
        name: parameter
        for check in checks
        for name, parameter in inspect.signature(check).parameters.items()
        if name in known and parameter.kind is Parameter.KEYWORD_ONLY
    }

    def decorate(method: Method) -> Method:
        signature = inspect.signature(method)
        own = [each for each in signature.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        signature = signature.replace(parameters=[*own, *defaults.values()])

        @functools.wraps(method)
        def call(*args: object, **given: object) -> object:
            if not given.keys() <= signature.parameters.keys():
                raise TypeError(_unknown(method, given, signature.parameters))
            return method(*args, **given)

        vars(call)["__signature__"] = signature
        if inspect.iscoroutinefunction(method):
            _mark_coroutine_function(call)
        return cast("Method", call)

    return decorate


def _mark_coroutine_function(call: Callable[..., object]) -> None:
    """Mark the function for ``inspect`` and test doubles as one that returns a coroutine."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    else:
        vars(call)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]


def _unknown(method: Callable[..., object], given: Iterable[str], known: Iterable[str]) -> str:
    from difflib import get_close_matches

    name = next(name for name in given if name not in known)
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its options are {', '.join([*known][1:])}"
    return f"{method.__qualname__}() has no option {name!r}; {hint}"
