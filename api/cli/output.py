"""What commands print, and how they end.

Results go to standard output, as a table or as JSON (``-o json``); errors and progress go to
standard error, so that a pipe carries results only.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from raftlog.errors import ConnectionLost, InvalidRequest, RaftlogError


class Format(enum.StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]
ServerOption = Annotated[
    str,
    typer.Option(
        "--server", "-s", envvar="RAFTLOG_SERVER", help="Any broker's address; several with commas."
    ),
]
DEFAULT_SERVER = "http://127.0.0.1:7070"

Cell = str | int | float | bool | None | Sequence[int] | Mapping[str, object]


def show(rows: Sequence[Mapping[str, Cell]], output: Format, *, single: bool = False) -> None:
    """Print rows: a table with one column a key, or JSON (one object when ``single``)."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(rows[0] if single else rows, indent=2) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console(soft_wrap=True).print(table)


def note(text: str) -> None:
    """A line for people, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


@contextmanager
def errors_reported() -> Iterator[None]:
    """Turn an error into one line on standard error and the exit code that fits it."""
    try:
        yield
    except RaftlogError as error:
        note(f"error ({error.code}): {error}")
        raise typer.Exit(_exit_code(error)) from None
    except (ConnectionRefusedError, TimeoutError) as error:
        note(f"error: no broker could be reached: {error}")
        raise typer.Exit(4) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _exit_code(error: RaftlogError) -> int:
    if isinstance(error, ConnectionLost):
        return 4
    if isinstance(error, InvalidRequest):
        return 1
    return 1 if error.is_definite else 3


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, Mapping):
        return ", ".join(f"{key}={value}" for key, value in cell.items())
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return ",".join(str(part) for part in cell)
    return str(cell)
