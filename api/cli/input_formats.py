"""Defines the input formats of ``produce``: how an input is split into parts, and how a part becomes a
record.

Decides: which options a format takes. Leaves to others: lines (``lines``), values (``own_values``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from io import BufferedReader
from typing import Final

from api.cli.input_options import InputOptions, Lines, Types
from api.cli.lines import Json, Keyed, Parse, Plain, blocks_of_lines, bounded, whole
from api.cli.output import wrong_usage
from api.cli.own_values import CsvValues, JsonValues, rows_of, without_mark
from api.cli.text import unescaped
from raftlog.errors import InvalidRequest

Blocks = Iterator[list[bytes]]


@dataclass(frozen=True, slots=True)
class InputFormat:
    """The two functions of an input format: one splits an input into blocks of lines or rows, one makes a
    record of a line or row.
    """

    blocks: Callable[[BufferedReader], Blocks]
    parse: Parse


def input_format(form: Lines, given: InputOptions) -> InputFormat:
    """Return the input format with its options. An option of another format is wrong usage."""
    make, takes = _FORMATS[form]
    for option in fields(given):
        if getattr(given, option.name) not in (None, False) and option.name not in takes:
            _refuse_option(option.name, form)
    if given.key_optional and given.key_field is None and given.key_column is None:
        wrong_usage("--key-optional needs a key; name its field with --key-field or --key-column")
    made = make(given)
    return InputFormat(made.blocks, bounded(made.parse))


def _refuse_option(option: str, form: Lines) -> None:
    name = option.replace("_", "-")
    takers = [one for one, (_, takes) in _FORMATS.items() if option in takes]
    wrong_usage(f"--{name} is for --input {' or '.join(takers)}, not for {form}; choose one")


def _values(given: InputOptions) -> InputFormat:
    if given.whole and given.key_separator is not None:
        wrong_usage("--whole is for one record; omit --key-separator, which is for lines")
    if given.key is not None and given.key_separator is not None:
        wrong_usage("--key and --key-separator exclude each other; choose one")
    parting = whole if given.whole else blocks_of_lines
    if given.key_separator is None:
        return InputFormat(parting, Plain(None if given.key is None else os.fsencode(given.key)))
    separator = unescaped("--key-separator", given.key_separator)
    if not separator:
        wrong_usage("--key-separator is empty; give the text between key and value, such as :")
    return InputFormat(parting, Keyed(separator))


def _json(given: InputOptions) -> InputFormat:
    return InputFormat(blocks_of_lines, Json(given.keep_partitions))


def _json_values(given: InputOptions) -> InputFormat:
    return InputFormat(_text_lines, JsonValues(given.key_field, given.key_optional))


def _csv(given: InputOptions) -> InputFormat:
    delimiter = unescaped("--delimiter", given.delimiter or ",").decode(errors="replace")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        wrong_usage(rf"--delimiter {given.delimiter!r} is not one character such as ; or \t")
    try:
        parse = CsvValues(
            delimiter,
            given.columns.split(",") if given.columns else (),
            given.key_column,
            given.key_optional,
            given.types or Types.TEXT,
        )
    except InvalidRequest as error:
        wrong_usage(f"--columns: {error}")
    return InputFormat(lambda source: rows_of(_text_lines(source), delimiter), parse)


def _text_lines(source: BufferedReader) -> Blocks:
    return without_mark(blocks_of_lines(source))


_FORMATS: Final[Mapping[Lines, tuple[Callable[[InputOptions], InputFormat], tuple[str, ...]]]] = {
    Lines.VALUE: (_values, ("key", "key_separator", "whole")),
    Lines.JSON: (_json, ("keep_partitions",)),
    Lines.JSON_VALUES: (_json_values, ("key_field", "key_optional")),
    Lines.CSV: (_csv, ("key_column", "key_optional", "columns", "delimiter", "types")),
}
