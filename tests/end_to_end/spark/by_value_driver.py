"""A driver whose workers cannot import ``spark_io``: a program for ``test_by_value``.

``python by_value_driver.py SERVERS DIRECTORY SENT COPIED [REMOTE]`` writes numbers to the topic SENT, copies
it to COPIED as a stream, twice, and prints what it reads of both. REMOTE is the address of a server of Spark
Connect.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BooleanType

import spark_io

SERVERS, DIRECTORY, SENT, COPIED, *REMOTE = sys.argv[1:]
NUMBERS = 20


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
    frame = source.options(subscribe=SENT, startingOffsets="earliest").load().select("value")
    sink = frame.writeStream.format("raftlog").option("bootstrap.servers", SERVERS)
    sink = sink.option("topic", COPIED).option("checkpointLocation", f"{DIRECTORY}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Write, copy, read."""
    if REMOTE:
        session = SparkSession.builder.remote(REMOTE[0]).getOrCreate()
    else:
        builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
        session = builder.getOrCreate()
    assert find_spec("spark_io") is not None
    missing = udf(is_missing, BooleanType())  # the session decides of which kind it is
    assert session.range(1).select(missing()).first() == (True,), "a worker can import spark_io"
    spark_io.register(session, by_value=True)
    numbers = session.range(0, NUMBERS, 1, 2).selectExpr("cast(id as string) as value")
    for _ in range(2):
        write = numbers.write.format("raftlog").mode("append").option("bootstrap.servers", SERVERS)
        write.option("topic", SENT).save()
        copy(session)
    print(f"sent {read(session, SENT).count()}, copied {read(session, COPIED).count()}")


if __name__ == "__main__":
    main()
