"""Branches of the source that a run takes.

An import hook adds an assignment to the source of the named packages: at the beginning of every function, of
every body of an ``if``, a loop, a ``match`` and an ``except``, and where an ``if`` without ``else`` is not
taken. A run then takes a tenth more time; a tracer of lines makes it three times as long.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, TypeVar

FLAGS: Final = "__branches_taken__"
"""The name that instrumented modules have for the flags."""


NAMES: Final[list[str]] = []
"""Each branch of the instrumented modules: its file, line and kind."""
_TAKEN: Final = bytearray()

_WithBody = TypeVar("_WithBody", ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
_Function = TypeVar("_Function", ast.FunctionDef, ast.AsyncFunctionDef)


def instrument(packages: Iterable[str]) -> None:
    """Import all modules of these packages with flags. Raises ``ValueError`` if one was imported before."""
    finder = _Finder(tuple(packages))
    known = [name for name in finder.packages if name in sys.modules]
    if known:
        raise ValueError(f"imported too early to be instrumented: {', '.join(known)}")
    sys.meta_path.insert(0, finder)
    for name in finder.packages:
        _import_all(name)


def taken() -> list[int]:
    """Numbers of the branches taken since the last call: places in ``NAMES``.

    Raises ``RuntimeError`` if a module was imported meanwhile: its numbers would differ between processes.
    """
    if len(_TAKEN) != len(NAMES):
        raise RuntimeError("a module is imported during a run: import it before")
    numbers = [number for number, is_taken in enumerate(_TAKEN) if is_taken]
    _TAKEN[:] = bytes(len(_TAKEN))
    return numbers


class _Finder(MetaPathFinder):
    """Finds the modules of these packages; leaves others to the next finder."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == name or fullname.startswith(f"{name}.") for name in self.packages):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Compiles the source itself: the compiled files of the cache set no flags."""

    def get_code(self, fullname: str) -> CodeType:
        probes = _Probes(self.path)
        tree = ast.fix_missing_locations(probes.visit(ast.parse(self.get_data(self.path), self.path)))
        code = compile(tree, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        _TAKEN.extend(bytes(len(NAMES) - len(_TAKEN)))
        module.__dict__[FLAGS] = _TAKEN
        exec(code, module.__dict__)


class _Probes(ast.NodeTransformer):
    """Adds ``__branches_taken__[number] = 1`` to each branch within functions."""

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).resolve().relative_to(Path.cwd()))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return self._function(node)

    def visit_If(self, node: ast.If) -> ast.If:
        self.generic_visit(node)
        node.body = [self._probe(node.body[0], "if"), *node.body]
        node.orelse = [self._probe(node.orelse[0] if node.orelse else node, "else"), *node.orelse]
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        return self._body(node, "for")

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AsyncFor:
        return self._body(node, "for")

    def visit_While(self, node: ast.While) -> ast.While:
        return self._body(node, "while")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        return self._body(node, "except")

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        return self._body(node, "case")

    def _body(self, node: _WithBody, kind: str) -> _WithBody:
        self.generic_visit(node)
        node.body = [self._probe(node.body[0], kind), *node.body]
        return node

    def _function(self, node: _Function) -> _Function:
        self.generic_visit(node)
        has_text = ast.get_docstring(node, clean=False) is not None
        words, rest = node.body[:has_text], node.body[has_text:]
        node.body = [*words, self._probe(node, "def"), *rest]
        return node

    def _probe(self, at: ast.stmt, kind: str) -> ast.stmt:
        number = len(NAMES)
        NAMES.append(f"{self._path}:{at.lineno} {kind}")
        target = ast.Subscript(ast.Name(FLAGS, ast.Load()), ast.Constant(number), ast.Store())
        return ast.copy_location(ast.Assign([target], ast.Constant(1)), at)


def _import_all(package: str) -> None:
    """All modules of a package but those that are programs, which would run."""
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, f"{package}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
