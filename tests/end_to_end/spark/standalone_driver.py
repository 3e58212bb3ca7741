"""A driver of a standalone cluster: a program for ``test_standalone``.

``python standalone_driver.py MASTER SERVERS DIRECTORY`` copies the topic ``raw`` to ``copy`` and archives it
below DIRECTORY until nothing is left. Its workers have no ``spark_io``: it travels with each task. Rows are
slow, so that executors can be killed in the middle of a task.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BooleanType

import spark_io

MASTER, SERVERS, DIRECTORY = sys.argv[1:]
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "3",
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
}


@udf(BooleanType())
def is_missing() -> bool:
    """Whether this worker cannot import the package."""
    return sys.modules["spark_io"] is None


@udf(BooleanType())
def slowly(_: bytes) -> bool:
    """True, after a while."""
    time.sleep(0.01)
    return True


def source(spark: SparkSession) -> DataFrame:
    """The records of ``raw``, in small batches."""
    reader = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    reader = reader.options(subscribe="raw", startingOffsets="earliest", includeHeaders="true")
    return reader.option("maxOffsetsPerTrigger", 100).load()


def main() -> None:
    """Copy, then archive."""
    session = SparkSession.builder.master(MASTER).config(map=CONFIG).getOrCreate()
    spark_io.register(session, by_value=True)
    assert session.range(1).select(is_missing()).first() == (True,), "a worker can import spark_io"
    copied = source(session).where(slowly("value")).select("key", "value").repartition(3)
    sink = copied.writeStream.format("raftlog").options(topic="copy", **{"bootstrap.servers": SERVERS})
    sink = sink.option("checkpointLocation", f"{DIRECTORY}/copying")
    sink.trigger(availableNow=True).start().awaitTermination()
    keeper = source(session).writeStream.format("raftlog-archive").option("bootstrap.servers", SERVERS)
    keeper = keeper.option("checkpointLocation", f"{DIRECTORY}/archiving")
    keeper.trigger(availableNow=True).start(f"{DIRECTORY}/archive").awaitTermination()


if __name__ == "__main__":
    main()
