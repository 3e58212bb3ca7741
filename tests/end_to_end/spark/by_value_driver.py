"""A driver whose workers cannot import ``spark_io``: a program for ``test_by_value``.

``python by_value_driver.py SERVERS DIRECTORY`` writes numbers to the topic ``sent``, copies it to ``copied``
as a stream, twice, and prints what it reads of both.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BooleanType

import spark_io

SERVERS, DIRECTORY = sys.argv[1:]
NUMBERS = 20


@udf(BooleanType())
def is_missing() -> bool:
    """Whether this worker cannot import it."""
    return sys.modules["spark_io"] is None


def read(spark: SparkSession, topic: str) -> DataFrame:
    """All records of a topic."""
    source = spark.read.format("raftlog").option("bootstrap.servers", SERVERS)
    return source.option("subscribe", topic).load()


def copy(spark: SparkSession) -> None:
    """Until nothing is left."""
    source = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    frame = source.options(subscribe="sent", startingOffsets="earliest").load().select("value")
    sink = frame.writeStream.format("raftlog").option("bootstrap.servers", SERVERS)
    sink = sink.option("topic", "copied").option("checkpointLocation", f"{DIRECTORY}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Write, copy, read."""
    session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
    assert find_spec("spark_io") is not None
    assert session.range(1).select(is_missing()).first() == (True,), "a worker can import spark_io"
    spark_io.register(session, by_value=True)
    numbers = session.range(0, NUMBERS, 1, 2).selectExpr("cast(id as string) as value")
    for _ in range(2):
        write = numbers.write.format("raftlog").mode("append").option("bootstrap.servers", SERVERS)
        write.option("topic", "sent").save()
        copy(session)
    print(f"sent {read(session, 'sent').count()}, copied {read(session, 'copied').count()}")


if __name__ == "__main__":
    main()
