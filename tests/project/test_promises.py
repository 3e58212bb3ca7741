"""Promises to users: each row of the page has tests that name it, and each name in a test is a row."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "promises.md"
_ROW = re.compile(r"^\| ([A-Z]+[0-9]+) \| (.+) \| `([^`]+)` \|$", re.MULTILINE)
_COMMENT = re.compile(r"^( *)# requirement: *(.*)$")
_NAME = re.compile(r"[A-Z]+[0-9]+")


class Row(NamedTuple):
    """One promise of the page, and the node id of its test."""

    name: str
    promise: str
    test: str


class Mention(NamedTuple):
    """A comment in a test module: its place, its text, and the tests that it is about."""

    place: str
    text: str
    tests: tuple[str, ...]


def _rows() -> list[Row]:
    return [Row(*found) for found in _ROW.findall(PAGE.read_text())]


@cache
def _mentions() -> tuple[Mention, ...]:
    return tuple(found for path in sorted((ROOT / "tests").rglob("*.py")) for found in _mentions_in(path))


def _mentions_in(path: Path) -> Iterator[Mention]:
    text = path.read_text()
    if "# requirement:" not in text:
        return
    lines, name = text.splitlines(), str(path.relative_to(ROOT))
    scopes = [*_scopes(ast.parse(text), f"{name}::")]
    for at, line in enumerate(lines, 1):
        if (comment := _COMMENT.match(line)) is not None:
            yield Mention(f"{name}:{at}", comment[2], _meant(at, lines, scopes))


class _Scope(NamedTuple):
    """A test, or a class of tests, with its lines; the first line is that of its first decorator."""

    first: int
    last: int
    tests: tuple[str, ...]
    is_class: bool


def _scopes(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[_Scope]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min(each.lineno for each in (node, *node.decorator_list))
            inner = [*_scopes(node, f"{prefix}{node.name}::")] if isinstance(node, ast.ClassDef) else []
            tests = tuple(test for scope in inner for test in scope.tests)
            if node.name.startswith("test_" if not isinstance(node, ast.ClassDef) else "Test") and not tests:
                tests = (f"{prefix}{node.name}",)
            yield _Scope(first, node.end_lineno or first, tests, isinstance(node, ast.ClassDef))
            yield from inner


def _meant(at: int, lines: list[str], scopes: list[_Scope]) -> tuple[str, ...]:
    """The test around a comment, the one right below it, or all tests if nothing is right below it."""
    around = [scope for scope in scopes if scope.first <= at <= scope.last and not scope.is_class]
    if around:
        return around[0].tests
    below = at + 1
    while below <= len(lines) and lines[below - 1].lstrip().startswith("#"):
        below += 1
    found = next((scope.tests for scope in scopes if scope.first == below), None)
    if found is not None or (below <= len(lines) and lines[below - 1].strip()):
        return found or ()
    return tuple(dict.fromkeys(test for scope in scopes for test in scope.tests))


def _tests_by_row() -> Mapping[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for mention in _mentions():
        for row in _NAME.findall(mention.text):
            found[row].update(mention.tests)
    return found


def test_the_page_has_each_row_once() -> None:
    names = [row.name for row in _rows()]
    assert len(names) > 100
    assert len(set(names)) == len(names)
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [A-Z]+[0-9]", line)]
    assert len(lines) == len(names), "a row of the table is not of the form: row, promise, test"


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row.name)
def test_each_promise_has_its_test(row: Row) -> None:
    path = row.test.partition("::")[0]
    assert (ROOT / path).exists(), f"{path} is not there"
    assert row.test in _tests_by_row()[row.name], f"{row.test} has no comment '# requirement: {row.name}'"


def test_each_name_in_a_test_is_a_row_of_the_page() -> None:
    known = {row.name for row in _rows()}
    for mention in _mentions():
        names = re.split(r"[, ]+", mention.text.strip())
        unknown = [name for name in names if name not in known]
        assert not unknown, f"{mention.place}: {', '.join(unknown)} is no row of {PAGE.name}"
        assert mention.tests, f"{mention.place}: the comment is about no test"


def test_each_promise_has_a_planted_bug_that_its_test_detects() -> None:
    planted: dict[str, str] = {}
    for path in sorted((ROOT / "tests" / "planted_bugs").glob("promises_of_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "PlantedBug"
            ):
                row = ast.literal_eval(node.args[1])
                assert row not in planted, f"{row} has two bugs"
                planted[row] = next(
                    ast.literal_eval(each.value) for each in node.keywords if each.arg == "seen_by"
                )
    for row in _rows():
        seen_by = planted.pop(row.name).partition("[")[0]
        assert seen_by == row.test or not seen_by.startswith("tests/"), (
            f"{row.name}: {seen_by}"
        )  # else a seed
    assert not planted, "bugs of promises that the page does not have"
