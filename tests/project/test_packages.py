"""The packages of a wheel are named alike wherever they are named."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from api.app import ROUTES
from raftlog.__main__ import OURS
from tests.helpers.wheel import PROJECT, ROOT, WHEEL

IGNORE = (ROOT / ".dockerignore").read_text().split()


def test_packages_are_named_alike_everywhere() -> None:
    # requirement: X1
    installed = set(WHEEL["only-include"])
    sources = re.search(r"^SOURCES := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sources is not None
    developers = {"bench", "verification"}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == installed | developers | {"tests"}
    assert set(OURS) == set(WHEEL["sources"]) < installed
    assert set(PROJECT["tool"]["importlinter"]["root_packages"]) == installed | developers
    assert set(PROJECT["tool"]["mypy"]["packages"]) == installed | developers | {"tests.helpers"}
    assert set(sources[1].split()) == installed | developers | {"tests"}
    assert IGNORE[0] == "*"
    assert {line for line in IGNORE[1:] if line[0] != "!"} == {"**/__pycache__"}
    assert {line[1:] for line in IGNORE if line[0] == "!"} == installed | {
        *WHEEL["force-include"],
        "pyproject.toml",
        "README.md",
        "LICENSE",
    }


UPWARD_BY_NAME = {  # imports that the layer check cannot see; those of ``_COMMANDS`` when a command is run
    ("raftlog/__main__.py", "api.cli"),
    ("raftlog/testing/__main__.py", "chaos.kit.supervisor"),
    ("api/cli/commands.py", "chaos.commands"),
}


def test_modules_of_higher_layers_are_named_in_few_places() -> None:
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    height = {
        package: -place for place, layer in enumerate(layers) for package in map(str.strip, layer.split("|"))
    }
    operations = {route.operation.name for route in ROUTES}  # such as "groups.offsets"
    found = {
        (str(path.relative_to(ROOT)), node.value)
        for package in height
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and _is_module(node.value) and node.value not in operations
        if height.get(node.value.partition(".")[0], height[package]) > height[package]
    }
    assert found == UPWARD_BY_NAME


def _is_module(name: object) -> bool:
    if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)+", name):
        return False
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_the_licence_is_in_checkout_and_wheel() -> None:
    # requirement: X1
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert (PROJECT["project"]["license"], PROJECT["project"]["license-files"]) == ("Apache-2.0", ["LICENSE"])


def _started_by_name(source: str) -> list[str]:
    """The modules that a source starts with ``python -m``, as expressions."""
    lists = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.List | ast.Tuple))
    texts = ([ast.unparse(each) for each in node.elts] for node in lists)
    return [
        following
        for words in texts
        if "sys.executable" in words
        for word, following in pairwise(words)
        if word == "'-m'"
    ]


@pytest.mark.parametrize("package", OURS)
def test_processes_of_our_packages_are_started_so_that_a_wheel_finds_them(package: str) -> None:
    """``python -m`` finds no module of ``raftlog/_packages``; ``raftlog.__main__.command_of`` does."""
    # requirement: X1
    found = {name for path in (ROOT / package).rglob("*.py") for name in _started_by_name(path.read_text())}
    assert found <= {"'pip'", "'raftlog'", "'spark_io.examples.carrier_totals'"}
