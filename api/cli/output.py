"""Writes the output of commands, and maps errors to exit codes.

Decides: results go to standard output, as a table or as JSON (``-o json``); errors, prompts and progress go
to standard error, so that a pipe receives results only. A command passes its result to ``show`` or ``done``;
the format is an option of all commands (``common_options``). Leaves to others: the columns and units of
tables (``tables``).
"""

from __future__ import annotations

import enum
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TextIO

import click

from api.cli.parameters import Option
from api.cli.tables import Row, printable, table_lines
from api.stop_signals import interruption_code
from raftlog.errors import ConnectionLost, NotSent, RaftlogError

if TYPE_CHECKING:
    from raftlog.wire.bodies import BrokerDescription

REFUSED = 1
WRONG_USAGE = 2
UNKNOWN = 3
UNREACHABLE = 4
REJECTED = 5
EXIT_CODES: Final = {
    0: "done",
    REFUSED: "refused or failed, and definitely not carried out",
    WRONG_USAGE: "wrong usage",
    UNKNOWN: "the outcome is unknown",
    UNREACHABLE: "no broker could be reached",
    REJECTED: "done, except for rejected lines",
}
"""The meaning of each exit code, for manual pages."""


class Format(enum.StrEnum):
    """The choice of the format of results."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class Colour(enum.StrEnum):
    """The choice whether problems are printed in colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


FORMAT_KEY: Final = "raftlog.format"
COLOUR_KEY: Final = "raftlog.colour"
DEFAULT_SERVER = "http://127.0.0.1:7070"
ServerOption = Annotated[
    str,
    Option(
        "--server",
        "--url",
        "-s",
        envvar="RAFTLOG_URL",  # the client reads this variable, too
        help="The address of any broker; several separated by commas.",
    ),
]

_FIELD = re.compile(
    r"^(?!there )[a-z_]+(?= is |: )"
)  # name of an option in the API and the client, at the beginning of an error
_OPTIONS = {
    "url": "--server",
    "id": "--id",
    "ids": "--id",
    "name": "NAME",
    "replication_factor": "--replication-factor",
}


def chosen_format() -> Format:
    """Return the format of the results of the running command."""
    context = click.get_current_context(silent=True)
    return Format.TABLE if context is None else context.meta.get(FORMAT_KEY, Format.TABLE)


def is_json() -> bool:
    """Return whether results are JSON."""
    return chosen_format() is Format.JSON


def show(
    rows: Sequence[Row],
    columns: Sequence[str] = (),
    *,
    value: object = None,
    single: bool = False,
    empty: str = "",
) -> None:
    """Print a result: for people as a table with a column per key, for programs as JSON.

    The JSON is ``value`` if it is given, otherwise the rows; with ``single`` it is the only row. A table has
    ``columns``, the most important first; a wide table also has the other columns. If there are no rows, the
    line ``empty`` is printed instead of a table.
    """
    if is_json():
        write_json(value if value is not None else rows[0] if single else rows)
    elif rows:
        write_table(rows, columns)
    elif empty:
        note(empty)


def done(text: str, **value: object) -> None:
    """Report that a change was made: ``text`` as a line on standard error for people, or ``value`` as JSON
    for programs.
    """
    if is_json():
        write_json(value)
    else:
        note(text)


def printed(text: str, **value: object) -> None:
    """Print a result that is one line, such as an id: ``text`` for people, or ``value`` as JSON for
    programs.
    """
    if is_json():
        write_json(value)
    else:
        _write(text + "\n")


def show_brokers(brokers: Sequence[BrokerDescription], *, single: bool = False) -> None:
    """Print a table of brokers, or their JSON."""
    import msgspec

    columns = ("broker_id", "http", "alive", "draining", "decommissioned", "replicas" if single else "rack")
    show([msgspec.structs.asdict(broker) for broker in brokers], columns, single=single)


def write_json(value: object) -> None:
    """Print a value as JSON."""
    _write(_json(value, indent=2) + "\n")


def write_json_line(value: object) -> None:
    """Print a value as a line of JSON and flush it, for commands whose results come one after another."""
    _write(_json(value) + "\n")
    sys.stdout.flush()


def _json(value: object, indent: int | None = None) -> str:
    """Encode a value, and the structs in it, as JSON."""
    import json

    return json.dumps(value, indent=indent, default=_builtins)


def _builtins(struct: object) -> object:
    import msgspec

    return msgspec.to_builtins(struct)


def printed_now(text: str, **value: object) -> None:
    """Print one of several results without waiting for the next results; programs get a line of JSON for each
    result.
    """
    if is_json():
        write_json_line(value)
    else:
        _write(text + "\n")
        sys.stdout.flush()


def write_table(rows: Sequence[Row], columns: Sequence[str] = ()) -> None:
    """Print a table: the names of ``columns``, and below them the rows. A wide table also has the other
    columns.
    """
    lines = table_lines(rows, columns, is_wide=chosen_format() is Format.WIDE)
    _write("".join(f"{line}\n" for line in lines))


def problem(text: str) -> None:
    """Write a line about a problem on standard error, in red on terminals."""
    shown = _printable(text)
    _tell(click.style(shown, fg="red") if _has_colour(sys.stderr) else shown)


def _has_colour(stream: TextIO) -> bool:
    context = click.get_current_context(silent=True)
    colour = Colour.AUTO if context is None else context.meta.get(COLOUR_KEY, Colour.AUTO)
    if colour is not Colour.AUTO:
        return bool(colour is Colour.ALWAYS)
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def note(text: str) -> None:
    """Write a line on standard error; does nothing if the stream is closed."""
    _tell(_printable(text))


def _printable(text: str) -> str:
    """Remove terminal escapes from a text: parts of it come from brokers."""
    return "\n".join(map(printable, text.split("\n")))


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:  # the pipe or terminal is closed: the exit code remains
        _write_no_more(sys.stderr)


def wrong_usage(text: str) -> NoReturn:
    """Print an error, and end the command with the exit code of wrong usage."""
    problem(f"error: {text}")
    raise click.exceptions.Exit(WRONG_USAGE)


@contextmanager
def options_checked() -> Iterator[None]:
    """Report a ``ValueError`` in the block as wrong usage, because it comes from an invalid option."""
    try:
        yield
    except ValueError as error:
        wrong_usage(_FIELD.sub(_as_option, str(error)))


@contextmanager
def errors_reported(*, changing: bool = False) -> Iterator[None]:
    """Report an error in the block as one line on standard error, and exit with the code of the error.

    With ``changing``, a lost response makes the outcome unknown. Without it, a lost response means that the
    command has reached no broker.
    """
    try:
        yield
        sys.stdout.flush()
    except RaftlogError as error:
        text = str(error)
        if error.details.get("field") in _OPTIONS:
            text = _FIELD.sub(_as_option, text)
        problem(f"error ({error.code}): {text}")
        raise click.exceptions.Exit(exit_code(error, changing=changing)) from None
    except BrokenPipeError:
        reader_has_closed()
    except OSError as error:
        problem(f"error: {error}")
        raise click.exceptions.Exit(UNKNOWN if changing else REFUSED) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(interruption_code()) from None


def reader_has_closed() -> None:
    """Discard further output after the reader of the pipe has closed it, even at the end of the
    interpreter.
    """
    _write_no_more(sys.stdout)


def _write_no_more(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exit_code(error: RaftlogError, *, changing: bool) -> int:
    """Return the exit code of an error; ``changing`` says whether the request may have changed something."""
    if isinstance(error, NotSent) or (isinstance(error, ConnectionLost) and not changing):
        return UNREACHABLE
    return REFUSED if error.is_definite or not changing else UNKNOWN


def _as_option(found: re.Match[str]) -> str:
    return _OPTIONS.get(found[0], f"--{found[0].replace('_', '-')}")


def _write(text: str) -> None:
    sys.stdout.write(text)
