"""Output and exit codes of commands.

Decides: results go to standard output, as a table or as JSON (``-o json``); errors, questions and progress go
to
standard error, so that a pipe receives results only. Maps errors to exit codes.
"""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import click

from api.cli.parameters import Option
from api.stop_signals import interruption_code
from raftlog.errors import ConnectionLost, NotSent, RaftlogError

if TYPE_CHECKING:
    from raftlog.wire.bodies import BrokerBody

REFUSED = 1
WRONG_USAGE = 2
UNKNOWN = 3
UNREACHABLE = 4
REJECTED = 5


class Format(enum.StrEnum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, Option("--output", "-o", help="How to print the result.")]
ServerOption = Annotated[
    str,
    Option(
        "--server",
        "-s",
        envvar="RAFTLOG_URL",  # as the client
        help="The address of any broker; several separated by commas.",
    ),
]
DEFAULT_SERVER = "http://127.0.0.1:7070"

_FIELD = re.compile(
    r"^[a-z_]+(?= is |: )"
)  # the API's and the client's names of an option, at the beginning of an error
_OPTIONS = {
    "bootstrap": "--server",
    "id": "--id",
    "ids": "--id",
    "name": "NAME",
    "replication_factor": "--replication",
}

Cell = object
Row = Mapping[str, Cell]


def show(rows: Sequence[Row], output: Format, *, single: bool = False) -> None:
    """Print rows: a table with one column per key, or JSON (one object when ``single``)."""
    if output is Format.JSON:
        write_json(rows[0] if single else rows)
    else:
        write_table(rows)


def broker_row(broker: BrokerBody, output: Format) -> Row:
    """One broker; a table leaves out the incarnation, which is for programs."""
    import msgspec

    row = msgspec.structs.asdict(broker)
    if output is not Format.JSON:
        del row["incarnation"]
    return row


def time_text(milliseconds: int) -> str:
    """A time as RFC 3339; empty for 0, which is not known."""
    if not milliseconds:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def write_json(value: object) -> None:
    """Print a value as JSON."""
    _write(json.dumps(value, indent=2) + "\n")


def write_table(rows: Sequence[Row]) -> None:
    """Write rows below the names of their columns, numbers right-aligned."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    is_number = [all(type(row.get(column)) in (int, float) for row in rows) for column in columns]
    for line in cells:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, is_number, strict=True)
        )
        _write("  ".join(padded).rstrip() + "\n")


def note(text: str) -> None:
    """Write a line on standard error, if anybody can read that."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:  # a closed pipe or terminal: the exit code remains
        _write_no_more(sys.stderr)


def wrong_usage(text: str) -> NoReturn:
    """End with the exit code of wrong usage."""
    note(f"error: {text}")
    raise click.exceptions.Exit(WRONG_USAGE)


@contextmanager
def options_checked() -> Iterator[None]:
    """Turn the ``ValueError`` of an invalid option into wrong usage."""
    try:
        yield
    except ValueError as error:
        wrong_usage(_FIELD.sub(_as_option, str(error)))


@contextmanager
def errors_reported(*, changing: bool = False) -> Iterator[None]:
    """Turn an error into one line on standard error and its exit code.

    With ``changing``, a missing response makes the outcome unknown; a command that only reads has then
    reached
    no broker.
    """
    try:
        yield
        sys.stdout.flush()
    except RaftlogError as error:
        text = str(error)
        if error.details.get("field") in _OPTIONS:
            text = _FIELD.sub(_as_option, text)
        note(f"error ({error.code}): {text}")
        raise click.exceptions.Exit(exit_code(error, changing=changing)) from None
    except BrokenPipeError:
        reader_has_closed()
    except OSError as error:
        note(f"error: {error}")
        raise click.exceptions.Exit(UNKNOWN if changing else REFUSED) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(interruption_code()) from None


def reader_has_closed() -> None:
    """The reader of the output has closed the pipe: write no more, even at the end of the interpreter."""
    _write_no_more(sys.stdout)


def _write_no_more(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exit_code(error: RaftlogError, *, changing: bool) -> int:
    """The exit code of an error."""
    if isinstance(error, NotSent) or (isinstance(error, ConnectionLost) and not changing):
        return UNREACHABLE
    return REFUSED if error.is_definite or not changing else UNKNOWN


def _as_option(found: re.Match[str]) -> str:
    return _OPTIONS.get(found[0], f"--{found[0].replace('_', '-')}")


def _write(text: str) -> None:
    sys.stdout.write(text)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return ",".join(str(part) for part in cell) or "-"
    return str(cell)
