"""Declares the options of ``produce`` about its input. The module imports little, so that help is fast."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Lines(enum.StrEnum):
    """The formats of a line in the input of ``produce``."""

    VALUE = "value"
    JSON = "json"
    JSON_VALUES = "json-values"
    CSV = "csv"


class Types(enum.StrEnum):
    """The choice whether cells of CSV are typed or are texts."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class InputOptions:
    """The options of ``produce`` about its input, as given; None and False mean that an option was not
    given.
    """

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
