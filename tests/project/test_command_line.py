"""Rules for every command: options that all have, short names, manual pages, documented tables."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import click
import pytest

from api.cli.commands import app, every_command
from api.cli.manual import page
from api.cli.tables import WIDTH

COMMANDS = dict(every_command())
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "command-line.md").read_text()
_LONG = ("verify", "inspect")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_json_and_takes_the_common_options(name: str) -> None:
    options = {option: each for each in COMMANDS[name].params for option in each.opts}
    choice = options["-o"].type
    assert isinstance(choice, click.Choice)
    assert [str(each) for each in choice.choices] == ["table", "wide", "json"]
    assert options["-o"] is options["--output"]
    assert "--color" in options
    assert ("--context" in options) == ("--url" in options and name not in ("context add", "cluster join"))


def test_a_short_option_has_one_meaning() -> None:
    meanings: dict[str, list[set[str]]] = defaultdict(list)
    for command in COMMANDS.values():
        for each in command.params:
            long = {option for option in each.opts if option.startswith("--")}
            for option in {*each.opts} - long if isinstance(each, click.Option) else ():
                meanings[option].append(long)
    assert len(meanings) > 10
    assert not {option: names for option, names in meanings.items() if not set.intersection(*names)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_manual_page_has_all_of_a_commands_help(name: str) -> None:
    command = COMMANDS[name]
    text = page(f"raftlog {name}", command, []).replace("\\-", "-")
    assert text.startswith(f'.TH "RAFTLOG-{name.replace(" ", "-").upper()}" 1')
    assert all(option in text for each in command.params for option in each.opts if option.startswith("-"))
    assert not [line for line in text.splitlines() if re.match(r"['.](?![A-Z]|nf|fi)", line)]


def test_every_command_is_documented_and_in_the_first_manual_page() -> None:
    first = page("raftlog", app, [f"raftlog {name}" for name in COMMANDS]).replace("\\-", "-")
    assert not [name for name in COMMANDS if f"raftlog-{name.replace(' ', '-')} (1)" not in first]
    assert "\n  raftlog dev\n" in first
    words = set(re.findall(r"[a-z-]+", DOCUMENT))
    assert not [name for name in COMMANDS if not {*name.split()} <= words]


def test_documented_tables_fit_a_terminal() -> None:
    """Tables, except for texts and paths of any length: errors, and what ``verify`` and ``inspect`` find."""
    blocks = re.findall(r"^```console\n(\$.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
    shown = [part for block in blocks for part in block.split("$ raftlog ")[1:]]
    lines = [line for part in shown if not part.startswith(_LONG) for line in part.splitlines()[1:]]
    tables = [line for line in lines if re.search(r"\S  +\S", line) and ", " not in line]
    assert len(tables) > 30
    assert not [line for line in tables if len(line) > WIDTH]
