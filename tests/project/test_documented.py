"""What the code offers is written down: every setting, every metric, every public name."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final, get_args

import pytest
from pydantic import BaseModel

import raftlog
from broker.settings import BrokerSettings
from raftlog import aio, errors
from tests.helpers.known_metrics import Known, known_metrics

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
OPTIONS = ("options.py", "consumer/options.py", "worker/options.py", "partition.py", "queue.py")
COMMENTS = "".join((ROOT / "raftlog" / "client" / name).read_text() for name in OPTIONS)


def _settings(model: type[BaseModel], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        inner = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        if name == "peers":
            continue
        if inner is not None:
            names += _settings(inner, f"{prefix}{name}.")
        else:
            names.append(prefix + name)
    return names


@pytest.mark.parametrize("setting", _settings(BrokerSettings))
def test_every_setting_is_documented(setting: str) -> None:
    assert f"`{setting}`" in OPERATIONS


async def test_the_table_of_metrics_is_that_of_a_broker() -> None:
    """Names, types and labels; counters end in ``_total``."""
    row = re.compile(r"^\| `(raftlog_\w+)` \| (\w+) \| ((?:`\w+`(?:, )?)*) ?\| \S", re.MULTILINE)
    documented = {
        name: Known(kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in row.findall(OPERATIONS)
    }
    assert documented == await known_metrics()


def test_public_names_are_sorted_whole_and_documented() -> None:
    assert list(raftlog.__all__) == sorted(raftlog.__all__)
    assert all(hasattr(raftlog, name) for name in raftlog.__all__)
    client = (ROOT / "docs" / "client.md").read_text()
    assert not [name for name in raftlog.__all__ if not re.search(rf"\b{name}\b", client)]


INTERNAL: Final = {"admit", "append", "consumer_core", "incarnation", "join_token"}
"""Methods of public classes that other parts of raftlog use."""


def _types_in(annotation: object) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for argument in get_args(annotation):
        yield from _types_in(argument)


@pytest.mark.parametrize("face", [raftlog, aio], ids=["blocking", "async"])
def test_what_public_methods_return_can_be_imported(face: ModuleType) -> None:
    public = {getattr(module, name) for module in (raftlog, aio) for name in module.__all__}
    missing = [
        f"{name}.{method}: {found.__qualname__}"
        for name in face.__all__
        for method, function in inspect.getmembers(getattr(face, name), inspect.isfunction)
        if not method.startswith("_") and method not in INTERNAL
        for found in _types_in(_returned(function))
        if found.__module__.startswith("raftlog") and found not in public
    ]
    assert not missing


def _returned(function: FunctionType) -> object:
    """The annotation of a method's result. Parameters may name types that only checkers import."""
    text = function.__annotations__.get("return")
    return eval(text, vars(import_module(function.__module__))) if isinstance(text, str) else text


@pytest.mark.parametrize(
    ("page", "heading", "method"),
    [
        ("client.md", "# The Python client", raftlog.Client),
        ("client.md", "## Producing", raftlog.Client.producer),
        ("client.md", "## Consuming in a group", raftlog.Client.consumer),
        ("client.md", "## Reading", raftlog.Partition.tail),
        ("client.md", "## Queues", raftlog.Queue.receive),
        ("client.md", "## Queues", raftlog.Queue.jobs),
        ("workers.md", "# Workers, retries and dead letters", raftlog.Client.worker),
    ],
)
def test_every_option_of_the_client_is_documented_with_its_default(
    page: str, heading: str, method: Callable[..., object]
) -> None:
    """In its section and in its TypedDict. A default of None may be written as what it stands for."""
    section = (ROOT / "docs" / page).read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    assert section
    elsewhere = _options(raftlog.Client.consumer) if page == "workers.md" else {}
    for name, default in _options(method).items():
        if name in elsewhere:
            continue
        written = "" if default in (None, Parameter.empty) else re.escape(_written(default))
        assert re.search(rf"`{name}(=|` \| `?){written}", section), name
        if default is not Parameter.empty and name not in ("idle", "wait"):
            assert re.search(rf"^    {name}: .*  # {re.escape(_written(default))}: ", COMMENTS, re.M), name


def _options(method: Callable[..., object]) -> dict[str, object]:
    """Its options with their defaults."""
    found = inspect.signature(method).parameters.items()
    return {name: option.default for name, option in found if option.kind is Parameter.KEYWORD_ONLY}


def _written(default: object) -> str:
    return json.dumps(default) if isinstance(default, str | tuple) else repr(default)


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    row = re.compile(r"^([│ ]*)[├└]── (\w+)", re.MULTILINE)
    parents, found = ["RaftlogError"], {}
    for indent, name in row.findall(errors.__doc__ or ""):
        depth = len(indent) // 4
        found[name] = parents[depth - 1]
        parents[depth:] = [name]
    kinds = list(errors.RaftlogError.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__ == errors.__name__]
    assert found == {kind.__name__: kind.__bases__[0].__name__ for kind in ours}


def test_the_glossary_defines_each_term_once() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    counts = Counter(name for term in terms for name in re.split(", | / ", term))
    assert [name for name, count in counts.items() if count > 1] == []
