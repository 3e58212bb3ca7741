"""Mutants of functions: found in the source, compiled, and planted in a running process.

A mutant is the code of one function. It replaces the code of the function object, so every module that has
imported the function runs it, whatever decorates it.
"""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

from tests.mutation.operators import Change, Function, changes

LEFT_OUT: Final = ("raftlog/core/invariants.py",)  # assertions, which no test of correct code sees


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function."""

    source: Source
    function: str
    first_line: int  # of the function, with its decorators
    node: Function
    change: Change

    @property
    def line(self) -> int:
        """The line that the change is in."""
        found = next((each for each in ast.walk(self.change.old) if hasattr(each, "lineno")), self.node)
        return found.lineno

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line whose tests could see it: those of the statement that is changed."""
        ends = [each.end_lineno for each in ast.walk(self.change.old) if getattr(each, "end_lineno", None)]
        return self.line, max(ends, default=self.line)

    def __str__(self) -> str:
        before, after = self.texts()
        where = f"{self.source.path}:{self.line}"
        return f"{where} {self.function} ({self.change.operator}): {before}  ->  {after}"

    def texts(self) -> tuple[str, str]:
        """The changed line, before and after."""
        statement = self.source.statement_around(self.change.old, self.node)
        before = _head(statement)
        if statement is self.change.old and isinstance(self.change.new, ast.Pass):
            return before, "pass"
        if statement is self.change.old and self.change.new is not None:
            return before, _head(self.change.new)
        undo = self.change.apply()
        after = _head(statement)
        undo()
        return before, after

    def compiled(self) -> CodeType | None:
        """The function's code with the change; None if it is the same code, or cannot replace it."""
        undo = self.change.apply()
        try:
            module = compile(self.source.tree, str(self.source.file), "exec", dont_inherit=True)
        except SyntaxError:
            return None
        finally:
            undo()
        before, after = (_find(code, self.function, self.first_line) for code in (self.source.code, module))
        if before is None or after is None or behaviour(before) == behaviour(after):
            return None
        return after if after.co_freevars == before.co_freevars else None


class Source:
    """One module of production code."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self.file = root / path
        self.tree = ast.parse(self.file.read_text())

    @property
    def module(self) -> str:
        """The name to import it by."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def code(self) -> CodeType:
        """The module, compiled without a change."""
        return compile(self.tree, str(self.file), "exec", dont_inherit=True)

    def mutants(self, lines: frozenset[int] | None = None) -> Iterator[Mutant]:
        """All of its functions; with ``lines``, those of functions that have one of these lines."""
        for name, node in _functions(self.tree, ""):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if lines is None or lines.intersection(range(first, (node.end_lineno or first) + 1)):
                for change in changes(node):
                    yield Mutant(self, name, first, node, change)

    @staticmethod
    def statement_around(node: ast.AST, function: Function) -> ast.AST:
        """The innermost statement of the function that contains the node."""
        innermost: ast.AST = function

        def search(at: ast.AST, around: ast.AST) -> bool:
            nonlocal innermost
            inside = at if isinstance(at, ast.stmt) else around
            if at is node:
                innermost = inside
                return True
            return any(search(child, inside) for child in ast.iter_child_nodes(at))

        search(function, function)
        return innermost


class Planter:
    """Plants mutants in functions that are imported already; made once, for many forked processes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # functions of modules that pytest has imported are set apart
        for each in gc.get_objects():
            if isinstance(each, FunctionType):
                self._functions.setdefault(_place(each.__code__), []).append(each)

    def plant(self, before: CodeType, after: CodeType) -> int:
        """Replace the code of the function and of functions made in it; how many function objects ran it."""
        planted = 0
        for old, new in _pairs(before, after):
            for function in self._functions.get(_place(old), ()):
                function.__code__ = new
                planted += 1
        return planted


def behaviour(code: CodeType) -> tuple[object, ...]:
    """All of a code object that can matter: equal for changes that the compiler undoes."""
    constants = tuple(
        behaviour(each) if isinstance(each, CodeType) else (type(each), repr(each)) for each in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, constants, names, code.co_flags, code.co_exceptiontable


def original(mutant: Mutant) -> CodeType:
    """The function's code without the change."""
    found = _find(mutant.source.code, mutant.function, mutant.first_line)
    assert found is not None
    return found


def sources(root: Path, package: str) -> list[Source]:
    """The modules of a package, which may be one file, by its path."""
    place = root / package
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    paths = [str(file.relative_to(root)) for file in files]
    return [Source(root, path) for path in paths if path not in LEFT_OUT]


def changed_lines(root: Path, since: str, packages: Iterable[str]) -> dict[str, frozenset[int]]:
    """Lines that differ from the common ancestor with ``since``, in each file; those not committed, too."""
    base = _git(root, "merge-base", since, "HEAD").strip()
    found: dict[str, set[int]] = {}
    path = ""
    for line in _git(root, "diff", "--unified=0", "--no-color", base, "--", *packages).splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif line.startswith("@@ ") and path.endswith(".py"):
            first, _, count = line.split()[2].removeprefix("+").partition(",")
            found.setdefault(path, set()).update(range(int(first), int(first) + max(1, int(count or 1))))
    return {path: frozenset(lines) for path, lines in found.items() if path not in LEFT_OUT}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
    ).stdout


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Functions of modules and classes; functions inside functions belong to these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from _functions(child, prefix)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _find(code: CodeType, name: str, first_line: int) -> CodeType | None:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_qualname, each.co_firstlineno) == (name, first_line):
                return each
            if (found := _find(each, name, first_line)) is not None:
                return found
    return None


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield before, after
    inside = {_place(each): each for each in after.co_consts if isinstance(each, CodeType)}
    for each in before.co_consts:
        if isinstance(each, CodeType):
            new = inside.get(_place(each))
            if new is not None and new.co_freevars == each.co_freevars:
                yield from _pairs(each, new)


def _head(statement: ast.AST) -> str:
    """A statement without its body, on one line."""
    if isinstance(statement, ast.stmt) and hasattr(statement, "body"):
        return ast.unparse(statement).splitlines()[0]
    return " ".join(ast.unparse(statement).split())
