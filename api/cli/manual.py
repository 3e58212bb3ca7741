"""Writes manual pages from the parser and the texts that ``--help`` shows (``raftlog man``)."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

import click

from api.cli.output import EXIT_CODES, errors_reported, show
from api.cli.parameters import Argument


def man(
    directory: Annotated[Path, Argument(metavar="DIR", help="The directory; created if it is missing.")],
) -> None:
    """Write the manual pages of all commands to a directory: raftlog.1 and one page for each command.

    \b
    Examples:
      raftlog man ~/.local/share/man/man1
      man raftlog-topic-create
    """
    from api.cli.commands import app, every_command

    with errors_reported():
        directory.mkdir(parents=True, exist_ok=True)
        commands = [("", app), *every_command()]
        found = {f"raftlog {name}".strip(): command for name, command in commands}
        rows = []
        for name, command in found.items():
            path = directory / f"{name.replace(' ', '-')}.1"
            path.write_text(page(name, command, [] if name != "raftlog" else [*found][1:]), encoding="utf-8")
            rows.append({"page": name, "file": str(path)})
        show(rows)


def page(name: str, command: click.Command, others: list[str]) -> str:
    """Return the manual page of a command in roff; ``others`` are the commands that the page refers to."""
    context = click.Context(command, info_name=name)
    paragraphs = cleandoc(command.help or "").split("\n\n")  # Python 3.13 does this itself
    lines = [f'.TH "{name.replace(" ", "-").upper()}" 1 "" "raftlog" "raftlog"', ".SH NAME"]
    lines += [f"{_roff(name.replace(' ', '-'))} \\- {_roff(' '.join(paragraphs[0].split()))}"]
    lines += [".SH SYNOPSIS", f".B {_roff(name)}", _roff(" ".join(command.collect_usage_pieces(context)))]
    lines += [".SH DESCRIPTION", *_described(paragraphs)]
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    if records:
        lines += [".SH OPTIONS", *(line for record in records for line in _term(*record))]
    lines += [
        ".SH EXIT STATUS",
        *(line for code, text in EXIT_CODES.items() for line in _term(str(code), text)),
    ]
    if others:
        lines += [".SH SEE ALSO", *(f".BR {_roff(each.replace(' ', '-'))} (1)" for each in others)]
    return "\n".join(lines) + "\n"


def _described(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        text = paragraph.lstrip("\n")
        yield ".PP"
        if text.startswith("\b"):  # the paragraph keeps its line breaks
            yield from (".nf", *(_roff(line) for line in text.split("\n")[1:]), ".fi")
        else:
            yield _roff(" ".join(text.split()))


def _term(term: str, text: str) -> Iterator[str]:
    yield from (".TP", f".B {_roff(term)}", _roff(" ".join(text.split())))


def _roff(text: str) -> str:
    """Escape a text for roff, the format of manual pages."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
