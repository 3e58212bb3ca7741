"""Reads lines and rows that are values themselves: JSON values, and rows of CSV. The key is a field of the
value.

Decides: the key and the value of such a line, and which lines are rejected. Leaves to others: lines
(``lines``), and the handling of rejected lines (``rejects``).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from api.cli.input_options import Types
from api.cli.lines import LINE_BYTES_MAX, Fields
from api.http.json_bodies import decode_json
from raftlog.errors import InvalidRecord, InvalidRequest
from raftlog.units import counted

Blocks = Iterator[list[bytes]]
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final = {"": b"null", "true": b"true", "false": b"false"}


@dataclass(frozen=True, slots=True)
class JsonValues:
    """A format whose lines are JSON values. ``key_field`` names the field with the key, with dots between
    levels.
    """

    key_field: str | None = None
    key_is_optional: bool = False

    def __call__(self, line: bytes) -> Fields | None:
        """Parse the line as a record; blank lines are skipped. Raises ``InvalidRecord``."""
        text = line.strip()
        if not text:
            return None
        value = decode_json(text, object, InvalidRecord)
        key = None if self.key_field is None else self._key(value, self.key_field)
        return text, key, (), None, None

    def _key(self, value: object, name: str) -> bytes | None:
        for level in name.split("."):
            value = value.get(level) if isinstance(value, dict) else None
        return _key_of(value, f"field {name!r}", is_optional=self.key_is_optional)


@dataclass(slots=True)
class CsvValues:
    """A format whose rows become JSON objects, whose fields have the names of the columns.

    The column names are in the first row, unless they are given. Raises ``InvalidRequest`` for invalid names,
    which no later row can correct, and ``InvalidRecord`` for an invalid row.
    """

    delimiter: str = ","
    columns: Sequence[str] = ()
    key_column: str | None = None
    key_is_optional: bool = False
    types: Types = Types.TEXT
    _key_at: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.columns:
            self._name(self.columns)

    def __call__(self, row: bytes) -> Fields | None:
        """Parse the row as a record; ``None`` for the row of column names and for an empty row."""
        wrong = InvalidRecord if self.columns else InvalidRequest
        try:
            cells = next(csv.reader(_text_lines(row), delimiter=self.delimiter, strict=True), [])
            if cells and self.columns:
                return self._fields(cells)
            if cells:
                self._name(cells)
            return None
        except UnicodeError:
            raise wrong("the row is not UTF-8; convert the file, for instance with iconv") from None
        except csv.Error as error:
            raise wrong(f"the row is not CSV: {_reason(error)}") from None

    def _name(self, names: Sequence[str]) -> None:
        """Set the names of the columns. Refuses repeated names, and names without the column of the key."""
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InvalidRequest(f"column {twice[0]!r} appears twice; name all columns with --columns")
        if self.key_column not in (None, *names):
            raise InvalidRequest(
                f"there is no column {self.key_column!r}; the columns are {', '.join(names)}"
            )
        "".join(names).encode()  # raises UnicodeError
        self.columns = names
        self._key_at = None if self.key_column is None else names.index(self.key_column)

    def _fields(self, cells: Sequence[str]) -> Fields:
        if len(cells) != len(self.columns):
            raise InvalidRecord(
                f"the row has {counted(len(cells), 'cell')}, but there are {len(self.columns)} column names"
            )
        key = None
        if self._key_at is not None:
            cell = cells[self._key_at] or None
            key = _key_of(cell, f"column {self.key_column!r}", is_optional=self.key_is_optional)
        values = cells if self.types is Types.TEXT else map(_typed, cells)
        value = msgspec.json.encode(dict(zip(self.columns, values, strict=True)))
        return value, key, (), None, None


class CsvRows:
    """Joins the lines of CSV rows, which may contain line feeds within quotes; iterates over blocks of rows.

    The second and later lines of a row are yielded as empty lines, so that indexes in a block still count
    lines. If the quotes of a row have no end, only its first line is yielded as a row, and the next line
    begins another row.
    """

    def __init__(self, blocks: Iterable[list[bytes]], delimiter: str) -> None:
        self._blocks = iter(blocks)
        self._delimiter = delimiter
        self._next: list[bytes] = []  # lines of the current block, the last line first
        self._taken: list[bytes] = []  # lines of the current row
        self._taken_bytes = 0

    def __iter__(self) -> Blocks:
        rows: list[bytes] = []
        while True:
            reader = csv.reader(self._lines(), delimiter=self._delimiter, strict=True)
            try:
                for _ in reader:
                    rows += self._row()
                    if not self._next:
                        yield rows
                        rows = []
                if rows:
                    yield rows
                return
            except csv.Error:
                rows.append(self._first_line())

    def _lines(self) -> Iterator[str]:
        """Yield lines as text for a reader of CSV."""
        while self._next or self._fill():
            line = self._next.pop()
            self._taken.append(line)
            self._taken_bytes += len(line)
            if self._taken_bytes > LINE_BYTES_MAX:
                raise csv.Error("too long")
            yield line.decode(errors="surrogateescape") + "\n"

    def _fill(self) -> bool:
        self._next = next(self._blocks, [])[::-1]
        return bool(self._next)

    def _row(self) -> list[bytes]:
        row = [b"\n".join(self._taken), *[b""] * (len(self._taken) - 1)]
        self._taken, self._taken_bytes = [], 0
        return row

    def _first_line(self) -> bytes:
        """Return the first line of a row whose quotes have no end; its other lines are read again as rows."""
        first, *others = self._taken
        self._next += others[::-1]
        self._taken, self._taken_bytes = [], 0
        return first


def rows_of(blocks: Iterable[list[bytes]], delimiter: str) -> Blocks:
    """Join the lines of CSV rows, in blocks. A cell may be as long as the largest record."""
    csv.field_size_limit(LINE_BYTES_MAX)
    return iter(CsvRows(blocks, delimiter))


def without_mark(blocks: Iterable[list[bytes]]) -> Blocks:
    """Yield the blocks; a byte order mark at the beginning of the first block is removed."""
    for number, lines in enumerate(blocks):
        if number == 0:
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        yield lines


def _text_lines(row: bytes) -> list[str]:
    return [f"{line}\n" for line in row.decode(errors="surrogateescape").split("\n")]


def _reason(error: csv.Error) -> str:
    text = str(error)
    if text.startswith("new-line character"):
        return "a carriage return is outside quotes"
    return "a quote is not closed" if text == "unexpected end of data" else text


def _typed(cell: str) -> object:
    """Return a number, a boolean or null if the text of the cell is JSON for it; otherwise return the
    text.
    """
    if _NUMBER.fullmatch(cell):
        return msgspec.Raw(cell.encode())
    return msgspec.Raw(_WORDS[cell]) if cell in _WORDS else cell


def _key_of(value: object, where: str, *, is_optional: bool) -> bytes | None:
    """Return the bytes of a key: the UTF-8 bytes of a text, or the digits of an integer."""
    if value is None:
        if is_optional:
            return None
        raise InvalidRecord(
            f"{where} is the key but has no value; --key-optional sends such records without a key"
        )
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    raise InvalidRecord(f"{where} is the key but is neither text nor an integer")
