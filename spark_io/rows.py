"""The rows of a DataFrame as records.

Decides: which columns a DataFrame may have, and what a null in each means. Leaves to others: sending
(``staging``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_io.errors import InvalidRows
from spark_io.schemas import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE: Final = 1_000
_TEXT: Final = (StringType, BinaryType)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
    "timestamp": (TimestampType,),
}
Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """One record to send. ``partition`` None: the producer's choice, by key."""

    value: bytes | str | None
    key: bytes | str | None
    topic: str
    partition: int | None
    headers: Headers
    timestamp_ms: int | None


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise ``InvalidRows`` unless every column can be written."""
    known = ", ".join([*_TYPES, "headers"])
    for field in schema.fields:
        if field.name == "headers":
            if nullable(field.dataType) != HEADERS:
                raise _wrong_type(field.name, field.dataType, HEADERS.simpleString())
        elif field.name not in _TYPES:
            raise InvalidRows(f"column {field.name} cannot be written; select some of {known}")
        elif not isinstance(field.dataType, _TYPES[field.name]):
            expected = " or ".join(kind.typeName() for kind in _TYPES[field.name])
            raise _wrong_type(field.name, field.dataType, expected)
    names = schema.names
    if "value" not in names:
        raise InvalidRows(f"there is no column value; the columns are {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise InvalidRows("there is no topic; set the option topic, or add a column topic")


def rows_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[list[Row]]:
    """The rows of Arrow batches, some at a time. ``topic`` overrides the column."""
    for batch in batches:
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield _rows(batch.slice(first, ROWS_AT_ONCE), topic)


def _rows(batch: pa.RecordBatch, topic: str | None) -> list[Row]:
    columns: dict[str, Sequence[object]] = {
        name: batch.column(number).to_pylist()
        for number, name in enumerate(batch.schema.names)
        if name not in ("timestamp", "headers")
    }
    nothing = [None] * batch.num_rows
    topics = [topic] * batch.num_rows if topic is not None else columns["topic"]
    if None in topics:
        raise InvalidRows("column topic is null in a row; set the option topic, or give each row a topic")
    headers = _headers(batch) if "headers" in batch.schema.names else repeat(())
    times = _times(batch) if "timestamp" in batch.schema.names else nothing
    fields = (columns["value"], columns.get("key", nothing), topics, columns.get("partition", nothing))
    return [Row(*row) for row in zip(*fields, headers, times, strict=False)]


def _headers(batch: pa.RecordBatch) -> list[Headers]:
    found: list[Headers] = []
    for pairs in batch.column("headers").to_pylist():
        for pair in pairs or ():
            if pair is None or pair["key"] is None:
                raise InvalidRows("column headers has a header without a key in a row; names are text")
        found.append(tuple((pair["key"], pair["value"]) for pair in pairs or ()))
    return found


def _times(batch: pa.RecordBatch) -> list[int | None]:
    """Milliseconds; a later part of a second is dropped, as in a record."""
    import pyarrow as pa

    column = batch.column("timestamp")
    in_ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    found: list[int | None] = in_ms.cast(pa.int64()).to_pylist()
    return found


def nullable(kind: DataType) -> DataType:
    """The same type, whatever Spark knows about nulls in it."""
    match kind:
        case ArrayType(elementType=element):
            return ArrayType(nullable(element))
        case StructType(fields=fields):
            return StructType([StructField(one.name, nullable(one.dataType)) for one in fields])
    return kind


def _wrong_type(name: str, kind: DataType, expected: str) -> InvalidRows:
    return InvalidRows(
        f"column {name} has the type {kind.simpleString()}, and must have {expected}; convert it, as in "
        f"cast({name} as string)"
    )
