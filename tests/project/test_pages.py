"""Pages can be pasted: every block says what it is, and every command and option that is named exists."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from api.cli.commands import app
from tests.helpers.documented_commands import RUN, SHOWN, blocks_of, heading, pages

PAGES = [*pages()]
COMMAND = re.compile(r"(?:^|[$|=/] *)raftlog ([a-z][^`\n|;&#]*)", re.MULTILINE)
OPTION = re.compile(r"--[a-z][a-z-]*")
OTHER_PROGRAMS = {"--privileged", "--at", "--kill", "--checkpoint", "--servers", "--stop-timeout"}
"""Options that pages name without their program: Docker, crash_points, and the examples of Spark."""
LABELS = {  # texts of protocols
    "raftlog dialler",
    "raftlog listener",
    "raftlog removed",
    "raftlog in use",
    "raftlog disk",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    blocks = blocks_of(page)
    assert not [str(block) for block in blocks if block.language not in (*RUN, *SHOWN)]
    assert page.read_text().count("\n```") == 2 * len(blocks), "a block is not as blocks_of understands it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_that_a_page_names_exists(page: Path) -> None:
    wrong = [f"raftlog {named}: {why}" for named in _commands(page) if (why := _what_is_wrong(named))]
    spans = re.findall(r"`([^`\n]*)`", page.read_text())
    alone = {option for span in spans if span.startswith("--") for option in OPTION.findall(span)}
    assert not wrong
    assert not alone - OTHER_PROGRAMS - _all_options(app)


def test_a_table_has_one_heading_in_all_pages() -> None:
    """A page may show a table that no test can produce; its heading is still the program's."""
    headings: dict[str, set[str]] = defaultdict(set)
    for page in PAGES:
        for block in blocks_of(page):
            for shown in block.commands:
                if shown.command.startswith("raftlog ") and heading(shown.output):
                    words = shown.command.removeprefix("raftlog ").split()
                    name = _found(words)[0] + " -o wide" * ("wide" in words)
                    headings[name].add(heading(shown.output))
    assert not {name: found for name, found in headings.items() if len(found) > 1}


def _commands(page: Path) -> Iterator[str]:
    """The words behind the name of the program in code, in text and in blocks."""
    text = page.read_text()
    spans = [
        span
        for span in re.findall(r"`([^`\n]*)`", text)
        if span.startswith("raftlog ") and span not in LABELS
    ]
    blocks = [block.text for block in blocks_of(page) if block.language in ("console", "text", "ini")]
    for code in (*spans, *blocks):
        yield from (found.strip() for found in COMMAND.findall(code))


def _found(words: list[str]) -> tuple[str, click.Command | None]:
    """The command that the first words name; None if there is none."""
    command: click.Command | None = app
    names: list[str] = []
    for word in words:
        if not isinstance(command, click.Group):
            break
        names.append(word)
        command = _inner(command, word)
    return " ".join(names), command


def _inner(group: click.Group, name: str) -> click.Command | None:
    """A command of a group, imported."""
    try:
        return group.resolve_command(click.Context(group), [name])[1]
    except click.UsageError:
        return None


def _what_is_wrong(named: str) -> str:
    try:
        words = shlex.split(named)
    except ValueError:
        words = named.split()
    _, command = _found([word for word in words if not word.startswith("-")])
    if command is None:
        return "there is no such command"
    unknown = {option for word in words for option in OPTION.findall(word)[:1] if word.startswith("--")}
    unknown -= _options(command)
    return f"there is no {', '.join(sorted(unknown))}" if unknown else ""


def _options(command: click.Command) -> set[str]:
    params = command.get_params(click.Context(command))
    return {option for param in params for option in (*param.opts, *param.secondary_opts)}


def _all_options(command: click.Command) -> set[str]:
    found = _options(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = _inner(command, name)
            found |= _all_options(inner) if inner else set()
    return found
