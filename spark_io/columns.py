"""Messages as Arrow columns, with the names and types of Spark's Kafka source.

Compiled code goes over the messages of a chunk, once for each column; no Python code runs for a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from raftlog.client.messages import Message
from spark_io.errors import InvalidOption

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TIMESTAMP_TYPES: Final = {"create": 0, "append": 1}  # Kafka's numbers
_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


def schema_of(*, includes_headers: bool, columns: str | None = None) -> StructType:
    """The columns of a source: all, or those that ``columns`` names. Raises ``InvalidOption``."""
    known = {field.name: field for field in (*_COLUMNS, StructField("headers", HEADERS))}
    if columns is None:
        return StructType([field for name, field in known.items() if includes_headers or name != "headers"])
    names = [name.strip() for name in columns.split(",")]
    if not set(names) <= set(known) or len(set(names)) < len(names):
        raise InvalidOption(f"columns is {columns[:200]!r}; name some of {', '.join(known)}, each once")
    return StructType([known[name] for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark compares the batches of a source with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """The messages of one partition, in the columns of ``schema``; no other is built."""
    return pa.RecordBatch.from_arrays([_column(messages, field) for field in schema], schema=schema)


def _column(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    match field.name:
        case "key" | "value":
            return pa.array(_each(field.name, messages), pa.binary())
        case "topic" | "partition":
            return pa.repeat(pa.scalar(getattr(messages[0], field.name), field.type), len(messages))
        case "offset":
            return pa.array(_each("offset", messages), pa.int64())
        case "timestamp":
            times = pa.array(_each("timestamp_ms", messages), pa.timestamp("ms", "UTC"))
            return times.cast(pa.timestamp("us", "UTC"))
        case "timestampType":
            types = map(_TIMESTAMP_TYPES.__getitem__, map(attrgetter("timestamp_type"), messages))
            return pa.array([*types], pa.int32())
        case _:
            return _headers(messages, field.type)


def _each(name: str, messages: Sequence[Message]) -> list[object]:
    return [*map(attrgetter(name), messages)]


def _headers(messages: Sequence[Message], kind: pa.ListType) -> pa.Array:
    """The headers of each message in order, names may repeat; null without any, as Kafka's source has it."""
    each = [*map(attrgetter("headers"), messages)]
    flat = [*chain.from_iterable(each)]
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([*map(itemgetter(0), flat)], pa.string()),
            pa.array([*map(itemgetter(1), flat)], pa.binary()),
        ],
        fields=[*kind.value_type],
    )
    ends = pa.array([*accumulate(map(len, each), initial=0)], pa.int32())
    without = pa.array([*map(len, each)], pa.int32())
    return pa.ListArray.from_arrays(ends, pairs, type=kind, mask=pa.compute.equal(without, 0))
