"""The source as text: what a machine can check about style, so that no reviewer has to."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.helpers.wheel import PROJECT, ROOT

PACKAGES = tuple(PROJECT["tool"]["importlinter"]["root_packages"])
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
MAY_PRINT = ("api/cli", "chaos", "verification", "bench")
# Below these, time and chance are handed in.
NO_CLOCK = (
    "raftlog/assignors",
    "raftlog/core",
    "raftlog/records",
    "raftlog/storage",
    "partitions/metadata/machine.py",
)
# Names in docstrings of what other programs and libraries have.
FOREIGN: Final = frozenset(
    {
        "nohup",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "EXT4_IOC_SHUTDOWN",
        "CalledProcessError",
        "FAIL_REASON",
        "stroke_width",
        "TCPConnector",
        "ClientSession",
        "WebHDFS",
        "mv",
        "lastProgress",
        "reportLatestOffset",
        "Trigger",
        "AvailableNow",
        "cronsim",
        "OPTIMIZE",
        "VACUUM",
        "timedelta",
        "KafkaError",
        "assert",
    }
)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS: Final = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_NOUN: Final = re.compile(
    r"(What|How|Where|The same|The ones?|Of|Those|It|Its|Until|Up to|As|That|Also|Not|See|These|This|They"
    r"|Their|Everything|Nothing|Whatever|Whoever|Likewise)\b|One (of|that|which|who|whose)\b"
)
PRONOUN: Final = re.compile(r"\b(the same|the ones?|those that|those of|that of|the others)\b")
QUOTED: Final = re.compile(r"``([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?``")
LEFT_TO_OTHERS: Final = re.compile(r"Leaves to\s+others: .*?(?:\n\n|\Z)", re.DOTALL)
PROSE: Final = 60  # characters; shorter texts may be names of fields, settings, files
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _sources(*, tests: bool = False) -> list[Path]:
    folders = [*PACKAGES, "tests"] if tests else list(PACKAGES)
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


class _Facts(NamedTuple):
    """Facts about a module for the tests. Syntax trees are not kept: they would slow down the collector."""

    has_docstring: bool
    long_functions: tuple[str, ...]
    imported: frozenset[str]
    texts: frozenset[str]  # a module may be imported by name when it is needed
    hidden_inputs: tuple[str, ...]
    docstrings: tuple[str, ...]
    contracts: tuple[str, ...]  # the docstrings of classes and functions
    defined: frozenset[str]  # classes, functions, variables
    mentioned: frozenset[str]  # parameters, fields, words of short texts


@cache
def _facts(path: Path) -> _Facts:
    tree = ast.parse(path.read_text())
    nodes = [*ast.walk(tree)]
    return _Facts(
        ast.get_docstring(tree) is not None,
        (*_long_functions(path, nodes),),
        frozenset(_imported(nodes)),
        frozenset(
            node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
        (*_hidden_inputs(path, nodes),),
        (*_docstrings(nodes, ast.Module, *DEFINITIONS),),
        (*_docstrings(nodes, *DEFINITIONS),),
        frozenset(_defined(nodes)),
        frozenset(_mentioned(nodes)),
    )


def _docstrings(nodes: Sequence[ast.AST], *kinds: type[Documented]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def _defined(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _mentioned(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < PROSE:
            yield from re.findall(r"[A-Za-z_]\w*", node.value)


def _long_functions(path: Path, nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{_name(path)}:{node.lineno} {node.name} has {length} lines"


def test_files_and_functions_fit_their_limits() -> None:
    found = []
    for path in _sources(tests=True):
        if path.read_text().count("\n") > FILE_LINES_MAX:
            found.append(f"{_name(path)} is longer than {FILE_LINES_MAX} lines")
        found += _facts(path).long_functions
    assert found == []


def test_every_module_says_what_it_is_for() -> None:
    assert [_name(path) for path in _sources() if not _facts(path).has_docstring] == []


def test_first_sentences_name_their_noun() -> None:
    """A docstring says what a call does or what a value is, without a pronoun in place of the noun."""
    assert not [
        f"{_name(path)}: {text.splitlines()[0]}"
        for path in _sources()
        for text in _facts(path).contracts
        if NO_NOUN.match(text) or PRONOUN.search(_first_sentence(text))
    ]


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:;])\s", text, maxsplit=1)[0].replace("\n", " ")


def test_names_in_docstrings_exist() -> None:
    """In double backticks. What is left to others is left to a module, class or function."""
    paths = _sources(tests=True)
    defined = {part for path in paths for part in path.relative_to(ROOT).with_suffix("").parts}
    defined |= {*sys.stdlib_module_names, *dir(builtins), *FOREIGN}
    defined = defined.union(*(_facts(path).defined for path in paths))
    known = defined.union(*(_facts(path).mentioned for path in paths))
    assert not [
        f"{_name(path)}: {name}"
        for path in paths
        for text in _facts(path).docstrings
        for quoted in QUOTED.findall(text)
        for name in quoted.split(".")
        if name not in known
    ]
    assert not [
        f"{_name(path)}: {name}"
        for path in paths
        for text in _facts(path).docstrings
        for part in LEFT_TO_OTHERS.findall(text)
        for bracket in re.findall(r"\(([^()]*)\)", part)
        for quoted in QUOTED.findall(bracket)
        for name in quoted.split(".")
        if name not in defined
    ]


def _imported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_tests_import_helpers_and_no_other_tests() -> None:
    """Helpers are in ``tests/helpers``; those of one folder may be in that folder."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        folder = path.relative_to(ROOT / "tests").parts[0]
        for name in sorted(_facts(path).imported):
            package, _, rest = name.partition(".")
            if package == "tests" and not re.match(rf"(helpers|{folder})\.(?!(.*\.)?test_)", rest):
                found.append(f"{_name(path)} imports {name}")
    assert found == []


# Programs whose job is to read and write the files that a user names.
REAL_FILES_IN_UNIT = (
    "broker/test_settings.py",
    "broker/listeners/test_tls.py",
    "client/test_tls.py",
    "bench/",
    "cli/",
)


def test_units_touch_no_real_files_and_start_no_brokers() -> None:
    found = [
        name
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if re.search(r"\btmp_path\b|(Controlled|Partition|Node|Hosting)Cluster\(", path.read_text())
        and not (name := str(path.relative_to(ROOT / "tests/unit"))).startswith(REAL_FILES_IN_UNIT)
    ]
    assert found == []


def test_nothing_is_postponed_or_printed() -> None:
    found = []
    for path in _sources():
        text = path.read_text()
        if re.search(r"\b(FIXME|TODO|XXX)\b", text):
            found.append(f"{_name(path)} postpones something")
        if re.search(r"^\s*print\(", text, re.MULTILINE) and not _name(path).startswith(MAY_PRINT):
            found.append(f"{_name(path)} prints")
    assert found == []


def test_no_pickle_and_no_hidden_chance_or_clock() -> None:
    assert [finding for path in _sources() for finding in _facts(path).hidden_inputs] == []


def _hidden_inputs(path: Path, nodes: Sequence[ast.AST]) -> Iterator[str]:
    imported = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr not in ("Random", "SystemRandom")
            and not _name(path).startswith(MAY_PRINT)
        ):
            yield f"{_name(path)}:{node.lineno} uses the global random"
    if imported & {"pickle", "marshal", "shelve"}:
        yield f"{_name(path)} imports what can run foreign code"
    if _name(path).startswith(NO_CLOCK) and "time" in imported:
        yield f"{_name(path)} reads the clock itself"


def test_an_object_of_the_core_sets_only_its_own_fields() -> None:
    found = []
    for path in sorted((ROOT / "raftlog/core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
                if not is_own:
                    found.append(f"{_name(path)}:{node.lineno} sets {ast.unparse(node)} from outside")
    assert found == []


def test_every_module_is_imported_by_something() -> None:
    imported: set[str] = set()
    for path in _sources(tests=True):
        names, texts = _facts(path).imported, _facts(path).texts
        imported |= names | texts | {name.rpartition(".")[0] for name in names}
    project = PROJECT["project"]
    started = {*project["scripts"].values(), *project["entry-points"]["pytest11"].values()}
    makefile = (ROOT / "Makefile").read_text()
    lonely = []
    for path in _sources():
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts)
        if parts[-1] in ("__init__", "__main__"):
            continue
        if name not in imported and f"-m {name}" not in makefile and not {name, f"{name}:main"} & started:
            lonely.append(name)
    assert not lonely, f"imported by nothing: {', '.join(lonely)}"


def test_every_document_has_one_title() -> None:
    found = []
    for path in DOCUMENTS:
        body = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        if len(titles := re.findall(r"^# .+", body, re.MULTILINE)) != 1:
            found.append(f"{_name(path)} has {len(titles)} titles")
    assert found == []


def test_links_between_documents_lead_somewhere() -> None:
    found = [
        f"{_name(path)} links to {target}, which is not there"
        for path in DOCUMENTS
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert found == []
