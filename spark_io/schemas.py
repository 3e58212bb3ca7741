"""The columns of a source, with the names and types of Spark's Kafka source.

Imports little: Spark starts several processes for each batch of a stream that need only this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

from spark_io.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
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
    """The schema of a source: all columns, or the columns named in ``columns``. Raises ``InvalidOption``."""
    known = {field.name: field for field in (*_COLUMNS, StructField("headers", HEADERS))}
    if columns is None:
        return StructType([field for name, field in known.items() if includes_headers or name != "headers"])
    names = [name.strip() for name in columns.split(",")]
    if not set(names) <= set(known) or len(set(names)) < len(names):
        raise InvalidOption(f"columns is {columns[:200]!r}; name some of {', '.join(known)}, each once")
    return StructType([known[name] for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema with which Spark compares the batches of a source."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
