"""Plant a bug in the running production code, and take it out again.

A bug is a replacement of text inside one function. It is planted into the function's code, so that
every module that has imported the function runs it. Text that is not there exactly once, a function
that is gone or a changed closure fails loudly: the bug must then be looked at again.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.simulator.odds import Odds


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement. ``place`` is ``module:function`` or ``module:Class.function``."""

    place: str
    text: str
    planted: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug: a replacement in one place, and ``more`` where it takes several to be one."""

    name: str
    place: str
    text: str
    planted: str
    more: tuple[Edit, ...] = ()
    script: str = ""  # the tests that see it, where it takes a rare interleaving
    level: str = ""  # whose seeds see it, where those of its area do not
    needs: Callable[[Odds], bool] | None = None  # only runs of brokers that draw this can see it
    equivalent: str = ""  # why it cannot matter, where it cannot

    @property
    def area(self) -> str:
        """Where it is planted, for people."""
        return self.place.partition(":")[0]


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
def planted(mutant: Mutant) -> Iterator[None]:
    """The bug is there inside the ``with``."""
    edits = (Edit(mutant.place, mutant.text, mutant.planted), *mutant.more)
    with contextlib.ExitStack() as stack:
        for place in dict.fromkeys(edit.place for edit in edits):
            here = [edit for edit in edits if edit.place == place]
            stack.enter_context(_edited(mutant.name, place, here))
        yield


@contextlib.contextmanager
def _edited(name: str, place: str, edits: list[Edit]) -> Iterator[None]:
    function = function_of(place)
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        if source.count(edit.text) != 1:
            raise NotPlanted(f"{name}: {edit.text!r} stands {source.count(edit.text)} times in {place}")
        source = source.replace(edit.text, edit.planted)
    before = function.__code__
    function.__code__ = _compiled(name, source, function)
    try:
        yield
    finally:
        function.__code__ = before


def _compiled(name: str, source: str, function: FunctionType) -> CodeType:
    lines = source.splitlines(keepends=True)
    while lines[0].lstrip().startswith("@"):
        lines.pop(0)
    # ``super()`` is bound to the class around the function.
    scope = "from __future__ import annotations\nclass Scope:\n"
    module = compile(scope + textwrap.indent("".join(lines), " "), name, "exec")
    outer = next(const for const in module.co_consts if isinstance(const, CodeType))
    codes = [const for const in outer.co_consts if isinstance(const, CodeType)]
    found = next((code for code in codes if code.co_name == function.__name__), None)
    if found is None or found.co_freevars != function.__code__.co_freevars:
        raise NotPlanted(f"{name}: {function.__qualname__} cannot be compiled on its own")
    return found
