"""What a DataFrame may have in its columns, and what a null means in each."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from raftlog.records.builder import Record
from spark_io.errors import InvalidRows
from spark_io.rows import ROWS_AT_ONCE, check_columns, rows_of
from spark_io.schemas import HEADERS

_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


# requirement: A8
@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("value", IntegerType(), "column value has the type int, and must have string or binary"),
        ("key", LongType(), "column key has the type bigint, and must have string or binary"),
        ("topic", BinaryType(), "column topic has the type binary, and must have string"),
        ("partition", StringType(), "column partition has the type string, and must have integer or long"),
        ("timestamp", LongType(), "column timestamp has the type bigint, and must have timestamp"),
        ("timestamp", TimestampNTZType(), "column timestamp has the type timestamp_ntz"),
        ("headers", MapType(StringType(), BinaryType()), "column headers has the type map<string,binary>"),
        ("headers", ArrayType(StringType()), "and must have array<struct<key:string,value:binary>>"),
        ("offset", LongType(), "column offset cannot be written; select some of value, key, topic"),
    ],
)
def test_a_column_of_a_wrong_type_is_refused_before_anything_is_written(
    name: str, kind: DataType, expected: str
) -> None:
    others = [StructField("value", StringType())] if name != "value" else []
    with pytest.raises(InvalidRows) as error:
        check_columns(StructType([*others, StructField(name, kind)]), "orders")
    assert expected in str(error.value)


# requirement: A8
@pytest.mark.parametrize(
    ("column", "topic", "expected"),
    [
        ("key", "orders", "there is no column value; the columns are key"),
        ("value", None, "there is no topic; set the option topic, or add a column topic"),
    ],
)
def test_rows_without_a_value_or_a_topic_are_refused(column: str, topic: str | None, expected: str) -> None:
    with pytest.raises(InvalidRows) as error:
        check_columns(StructType([StructField(column, StringType())]), topic)
    assert expected in str(error.value)


def test_what_spark_knows_of_nulls_makes_no_other_type() -> None:
    pair = StructType([StructField("key", StringType(), False), StructField("value", BinaryType(), False)])
    headers = StructField("headers", ArrayType(pair, containsNull=False), False)
    check_columns(StructType([StructField("value", StringType(), False), headers]), "orders")
    check_columns(StructType([StructField("value", BinaryType()), StructField("headers", HEADERS)]), "orders")


# requirement: A8
def test_nulls_and_repeated_headers_stay_what_they_are() -> None:
    repeated = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "h", "value": b"1"}]
    columns = {
        "value": pa.array([None, "v"], pa.string()),
        "key": pa.array([None, "k"], pa.string()),
        "partition": pa.array([None, 3], pa.int32()),
        "timestamp": pa.array([None, 1_500_999], pa.timestamp("us", "UTC")),
        "headers": pa.array([None, repeated], _PAIRS),
    }
    ((by_key, named),) = rows_of([pa.RecordBatch.from_pydict(columns)], "orders")
    assert by_key == ("orders", None, [Record(None, None, (), None)])
    assert named == ("orders", 3, [Record(b"v", b"k", (("h", b"1"), ("h", None), ("h", b"1")), 1_500)])


# requirement: A8
def test_rows_of_a_topic_and_a_partition_stay_together_and_in_order() -> None:
    numbers = [*range(3 * ROWS_AT_ONCE)]
    columns = {
        "value": pa.array([str(number) for number in numbers], pa.large_string()),
        "topic": pa.array(["ab"[number % 2] for number in numbers]),
        "partition": pa.array([number % 3 for number in numbers], pa.int64()),
    }
    some = [*rows_of([pa.RecordBatch.from_pydict(columns)], None)]
    assert [len(each) for each in some] == [6, 6, 6]
    for topic in "ab":
        for partition in range(3):
            found = [
                int(record.value or b"")
                for each in some
                for rows in each
                if rows[:2] == (topic, partition)
                for record in rows.records
            ]
            assert found == [n for n in numbers if "ab"[n % 2] == topic and n % 3 == partition]
    del columns["partition"]
    ((first,), *_) = rows_of([pa.RecordBatch.from_pydict(columns)], "orders")
    assert first[:2] == ("orders", None), "the option takes precedence over the column"
    assert len(first.records) == ROWS_AT_ONCE


# requirement: A8
def test_rows_with_and_without_a_partition_keep_their_order() -> None:
    columns = {"value": pa.array(["a", "b", "c", "d"]), "partition": pa.array([None, 1, 1, None], pa.int32())}
    (some,) = rows_of([pa.RecordBatch.from_pydict(columns)], "orders")
    assert [(one.partition, [record.value for record in one.records]) for one in some] == [
        (None, [b"a"]),
        (1, [b"b", b"c"]),
        (None, [b"d"]),
    ]


def test_a_time_before_1970_is_refused() -> None:
    columns = {"value": pa.array(["v"]), "timestamp": pa.array([-1_000], pa.timestamp("us", "UTC"))}
    with pytest.raises(InvalidRows, match="column timestamp has -1 ms in a row, which is before 1970"):
        list(rows_of([pa.RecordBatch.from_pydict(columns)], "orders"))


@pytest.mark.parametrize("pair", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_name_is_refused(pair: object) -> None:
    columns = {"value": pa.array(["v"]), "headers": pa.array([[pair]], _PAIRS)}
    with pytest.raises(InvalidRows, match="a header without a key in a row; names are text"):
        list(rows_of([pa.RecordBatch.from_pydict(columns)], "orders"))
