"""A driver of the long pipeline: a program for ``test_long_pipeline``.

``python long_pipeline_driver.py SERVERS CHECKPOINT`` counts the records of ``raw`` by key, in windows of
event time, as a stream into the topic ``counted``. ``python long_pipeline_driver.py SERVERS`` prints the
number and the checksum of the windows that one batch makes of the same records, and of those in
``counted``.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

SERVERS, *CHECKPOINT = sys.argv[1:]
LATE_S = 3_600
WINDOW = "5 minutes"
FIELDS = "unix_seconds(window.start) as start, carrier, count, total"
RECORD = ("carrier as key", f"to_json(struct({FIELDS})) as value")
TEXT = "cast(value as string)"
SUMS = (
    "count(*) as windows",
    f"sum(cast(get_json_object({TEXT}, '$.count') as long)) as records",
    f"bit_xor(xxhash64({TEXT})) as checksum",
)


def windows(frame: DataFrame) -> DataFrame:
    """Records and the sum of their numbers, by key and window. The time is that of the record."""
    events = frame.selectExpr(
        "timestamp", "cast(key as string) as carrier", "cast(cast(value as string) as long) as n"
    )
    if CHECKPOINT:
        events = events.withWatermark("timestamp", f"{LATE_S} seconds")
    found = events.groupBy(window("timestamp", WINDOW), "carrier").agg({"*": "count", "n": "sum"})
    return found.withColumnsRenamed({"count(1)": "count", "sum(n)": "total"}).selectExpr(*RECORD)


def stream(spark: SparkSession) -> None:
    """Until nothing is left."""
    reader = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    reader = reader.options(subscribe="raw", startingOffsets="earliest", columns="timestamp,key,value")
    found = windows(reader.option("maxOffsetsPerTrigger", 250_000).load())
    sink = found.writeStream.format("raftlog").options(topic="counted", **{"bootstrap.servers": SERVERS})
    sink = sink.option("checkpointLocation", CHECKPOINT[0]).trigger(availableNow=True)
    sink.start().awaitTermination()


def compare(spark: SparkSession) -> None:
    """Windows that are final at the end, in one batch and in the topic."""
    reader = spark.read.format("raftlog").option("bootstrap.servers", SERVERS)
    raw = reader.option("subscribe", "raw").load()
    newest = raw.selectExpr("unix_millis(max(timestamp)) as newest").first()
    assert newest is not None
    start = f"cast(get_json_object({TEXT}, '$.start') as long)"
    end = f"{start} + 300 <= ({newest[0]} / 1000) - {LATE_S}"
    counted = spark.read.format("raftlog").option("bootstrap.servers", SERVERS)
    for frame in (windows(raw), counted.option("subscribe", "counted").load()):
        final = frame.where(end).selectExpr(*SUMS).first()
        assert final is not None
        print(*final)


def main() -> None:
    """One of both."""
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "2g")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    if CHECKPOINT:
        stream(spark)
    else:
        compare(spark)


if __name__ == "__main__":
    main()
