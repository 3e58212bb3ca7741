"""Plant a bug in the running production code, and take it out again.

A bug is one or more edits: each replaces text inside one function. The edited code is planted into the
function object, so that every module that has imported the function runs it. Text that does not occur
exactly once, a function that is gone or a changed closure raises ``NotPlanted``: the production code has
changed, and the bug needs another edit.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement. ``place`` is ``module:function`` or ``module:Class.function``."""

    place: str
    text: str
    planted: str


class NotPlanted(Exception):
    """The production code has changed: this bug no longer applies."""


def function_of(place: str) -> FunctionType:
    """The function that a place names."""
    module_name, _, path = place.partition(":")
    found: object = importlib.import_module(module_name)
    for name in path.split("."):
        found = inspect.getattr_static(found, name, None)
        if isinstance(found, property):
            found = found.fget
        elif isinstance(found, classmethod | staticmethod):
            found = found.__func__
    if isinstance(found, FunctionType) and isinstance(inner := inspect.unwrap(found), FunctionType):
        return inner
    raise NotPlanted(f"{place} is no function any more")


@contextlib.contextmanager
def planted(*edits: Edit) -> Iterator[None]:
    """Run the body of the ``with`` with all edits in place. Raises ``NotPlanted``."""
    with contextlib.ExitStack() as stack:
        for place in dict.fromkeys(edit.place for edit in edits):
            here = [edit for edit in edits if edit.place == place]
            stack.enter_context(_edited(place, here))
        yield


@contextlib.contextmanager
def _edited(place: str, edits: list[Edit]) -> Iterator[None]:
    function = function_of(place)
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        if source.count(edit.text) != 1:
            raise NotPlanted(f"{edit.text!r} occurs {source.count(edit.text)} times in {place}")
        source = source.replace(edit.text, edit.planted)
    before = function.__code__
    function.__code__ = _compiled(place, source, function)
    try:
        yield
    finally:
        function.__code__ = before


def _compiled(place: str, source: str, function: FunctionType) -> CodeType:
    lines = source.splitlines(keepends=True)
    while lines[0].lstrip().startswith("@"):
        lines.pop(0)
    # ``super()`` is bound to the class around the function.
    scope = "from __future__ import annotations\nclass Scope:\n"
    module = compile(scope + textwrap.indent("".join(lines), " "), place, "exec")
    outer = next(const for const in module.co_consts if isinstance(const, CodeType))
    codes = [const for const in outer.co_consts if isinstance(const, CodeType)]
    found = next((code for code in codes if code.co_name == function.__name__), None)
    if found is None or found.co_freevars != function.__code__.co_freevars:
        raise NotPlanted(f"{place} cannot be compiled on its own")
    return found
