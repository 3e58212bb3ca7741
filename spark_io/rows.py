"""Converts the rows of a DataFrame to records.

Decides: which columns a DataFrame may have, and the meaning of a null in each column. Leaves to others:
sending (``staging``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
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

from raftlog.records.builder import Record
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


class Rows(NamedTuple):
    """Records of one topic, in order. If ``partition`` is None, the producer chooses partitions by key."""

    topic: str
    partition: int | None
    records: list[Record]


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


def rows_of(batches: Iterable[pa.RecordBatch], topic: str | None) -> Iterator[list[Rows]]:
    """The rows of Arrow batches as records, in portions.

    ``topic`` takes precedence over the column ``topic``. Compiled code creates the records: no Python code
    runs for a row without headers, topic and partition.
    """
    for batch in batches:
        for first in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield _rows(batch.slice(first, ROWS_AT_ONCE), topic)


def _rows(batch: pa.RecordBatch, topic: str | None) -> list[Rows]:
    count, names = batch.num_rows, batch.schema.names
    keys = _bytes(batch.column("key")) if "key" in names else [None] * count
    headers = _headers(batch) if "headers" in names else repeat((), count)
    times = _times(batch) if "timestamp" in names else repeat(None, count)
    values = _bytes(batch.column("value"))
    records = [*map(Record, values, keys, headers, times)]
    if topic is not None and "partition" not in names:
        return [Rows(topic, None, records)]
    topics = [topic] * count if topic is not None else batch.column("topic").to_pylist()
    partitions = batch.column("partition").to_pylist() if "partition" in names else [None] * count
    if None in topics:
        raise InvalidRows("column topic is null in a row; set the option topic, or give each row a topic")
    return _grouped([*zip(topics, partitions, strict=True)], records)


def _grouped(targets: Sequence[tuple[str, int | None]], records: Sequence[Record]) -> list[Rows]:
    """Group records by the topic and partition to which they are sent.

    If some records are placed by key and others by number, both may go to the same partition: then only
    consecutive records are grouped, so that records stay in order.
    """
    by_key = sum(partition is None for _, partition in targets)
    if 0 < by_key < len(targets):
        runs = groupby(zip(targets, records, strict=True), key=itemgetter(0))
        return [Rows(topic, number, [record for _, record in run]) for (topic, number), run in runs]
    found: dict[tuple[str, int | None], list[Record]] = {}
    for target, record in zip(targets, records, strict=True):
        found.setdefault(target, []).append(record)
    return [Rows(topic, number, some) for (topic, number), some in found.items()]


def _bytes(column: pa.Array) -> list[bytes | None]:
    """The cells of a column of strings or bytes, as bytes."""
    import pyarrow as pa

    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _headers(batch: pa.RecordBatch) -> list[Headers]:
    found: list[Headers] = []
    for pairs in batch.column("headers").to_pylist():
        for pair in pairs or ():
            if pair is None or pair["key"] is None:
                raise InvalidRows("column headers has a header without a key in a row; names are text")
        found.append(tuple((pair["key"], pair["value"]) for pair in pairs or ()))
    return found


def _times(batch: pa.RecordBatch) -> list[int | None]:
    """The cells of a timestamp column in milliseconds.

    Microseconds are dropped, since records have milliseconds.
    """
    import pyarrow as pa

    column = batch.column("timestamp")
    in_ms = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    found: list[int | None] = in_ms.cast(pa.int64()).to_pylist()
    for time_ms in found:
        if time_ms is not None and time_ms < 0:
            raise InvalidRows(f"column timestamp has {time_ms} ms in a row, which is before 1970")
    return found


def nullable(kind: DataType) -> DataType:
    """The type in which all elements of arrays and all fields of structs are nullable."""
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
