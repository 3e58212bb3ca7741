"""Declares the options of ``produce`` about its input, in a module that help can import quickly."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Lines(enum.StrEnum):
    """The format of the lines of an input."""

    VALUE = "value"
    JSON = "json"
    JSON_VALUES = "json-values"
    CSV = "csv"


class Types(enum.StrEnum):
    """The types of the cells of CSV."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options as given; None and False are options that are not given."""

    key: str | None = None
    key_separator: str | None = None
    whole: bool = False
    keep_partitions: bool = False
    key_field: str | None = None
    key_column: str | None = None
    key_optional: bool = False
    columns: str | None = None
    delimiter: str | None = None
    types: Types | None = None
