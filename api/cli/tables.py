"""Writes tables for people: aligned columns, sizes with units, durations in words.

Decides: which columns a table has, and the text of a cell. The unit of a number is the last part of its
column's name, as in ``size_bytes``: the table shows ``size`` and ``1.2MiB``. JSON has the exact number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from raftlog.units import DIGITS_MAX

Cell = object
Row = Mapping[str, Cell]
WIDTH: Final = 80
"""The width in columns of the terminal for which tables are made."""

_NUMBERS: Final = {int, float, type(None)}
_SIZES: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DURATIONS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def table_lines(rows: Sequence[Row], first: Sequence[str] = (), *, is_wide: bool = True) -> Iterator[str]:
    """Yield a line with the column names, then a line for each row; numbers are right-aligned.

    The columns ``first`` come first; a table that is not ``is_wide`` has no other columns.
    """
    columns = [*first, *(() if first and not is_wide else _others(rows, first))]
    headings = [_heading(column, columns) for column in columns]
    cells = [headings, *([cell_text(column, row.get(column)) for column in columns] for row in rows)]
    widths = [max(_columns(line[place]) for line in cells) for place in range(len(columns))]
    kinds = [{type(row.get(column)) for row in rows} for column in columns]
    is_number = [kind <= _NUMBERS and kind != {type(None)} for kind in kinds]
    for line in cells:
        padded = (
            text.rjust(width) if right else text + " " * (width - _columns(text))
            for text, width, right in zip(line, widths, is_number, strict=True)
        )
        yield "  ".join(padded).rstrip()


def _columns(text: str) -> int:
    """Return the number of terminal columns that a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported here because it takes 5 ms, and most tables are ASCII

    return cell_len(text)


def cell_text(column: str, cell: Cell) -> str:
    """Return the text of a cell, formatted for people."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (int, float)):
        return _number_text(_unit(column), cell)
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        return ",".join(_part_text(part) for part in cell) or "-"
    return _part_text(cell)


def printable(text: str) -> str:
    """Escape characters that move the cursor of a terminal or change its colours."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _part_text(part: object) -> str:
    fields = getattr(part, "__struct_fields__", None)
    if fields is None:
        return printable(str(part))
    return " ".join(f"{name}={cell_text(name, getattr(part, name))}" for name in fields)


def size_text(size_bytes: int) -> str:
    """Format a size with one decimal place, such as ``1.2MiB``."""
    for unit, factor in _SIZES:
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.1f}".removesuffix(".0") + unit
    return f"{size_bytes}B"


def duration_text(milliseconds: float) -> str:
    """Format a duration in its two largest units, such as ``1h30m``; up to seconds with three digits."""
    if abs(milliseconds) < 999.5:
        return f"{milliseconds:.3g}ms"
    if abs(milliseconds) < 59_950:
        return f"{milliseconds / 1000:.3g}s"
    parts: list[str] = []
    left = round(milliseconds / 1000) * 1000
    for unit, factor in _DURATIONS[:-1]:
        count, left = divmod(left, factor)
        if parts or count:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2])


def setting_text(name: str, value: object) -> str:
    """Format the value of a setting as options accept it: exact, in the largest unit that divides it."""
    units = {"ms": _DURATIONS, "bytes": _SIZES}.get(name.rpartition(".")[2], ())
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is int and value > 0:
        shown = next((f"{value // factor}{unit}" for unit, factor in units if value % factor == 0), "")
        return shown if 0 < len(shown) <= DIGITS_MAX else str(value)
    return str(value) or "-"


def time_text(milliseconds: int | None) -> str:
    """Format a time as RFC 3339; empty for 0 and ``None``, which mean unknown."""
    if not milliseconds:
        return ""
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _others(rows: Sequence[Row], first: Sequence[str]) -> list[str]:
    return [key for key in dict.fromkeys(key for row in rows for key in row) if key not in first]


def _unit(column: str) -> str:
    return column.rpartition("_")[2]


def _heading(column: str, columns: Sequence[str]) -> str:
    """Return the heading of a column: its name without the unit, which the cells show."""
    name, _, unit = column.rpartition("_")
    return name if unit in ("bytes", "ms", "seconds") and name and name not in columns else column


def _number_text(unit: str, number: float) -> str:
    if unit == "bytes":
        return size_text(int(number))
    if unit in ("ms", "seconds"):
        return duration_text(number if unit == "ms" else number * 1000)
    return str(number)
