"""A driver of a standalone cluster: a program for ``test_standalone``.

``python standalone_driver.py MASTER SERVERS DIRECTORY`` writes numbers to the topic ``speculated``, one half
of them by two attempts at the same time, copies the topic ``raw`` to ``copy`` and archives it below DIRECTORY
until nothing is left. Its workers have no ``spark_io``: it travels with each task. Rows are
slow, so that executors can be killed in the middle of a task.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import BooleanType

import spark_io

MASTER, SERVERS, DIRECTORY = sys.argv[1:]
NUMBERS = 1_000
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
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.interval": "200ms",
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


@udf(BooleanType())
def twice(_: int) -> bool:
    """True; the first attempt of the first task waits until another one is at work, and a while longer."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        place = Path(DIRECTORY) / f"attempt-{context.attemptNumber()}"
        if not place.exists():
            place.touch()
            while context.attemptNumber() == 0 and not place.with_name("attempt-1").exists():
                time.sleep(0.05)
    return True


def speculate(spark: SparkSession) -> None:
    """A batch, whose first task has two attempts that send their rows at about the same time."""
    numbers = spark.range(0, NUMBERS, 1, 2).where(twice("id")).selectExpr("cast(id as string) as value")
    sink = numbers.write.format("raftlog").mode("append").option("topic", "speculated")
    sink.option("bootstrap.servers", SERVERS).save()


def source(spark: SparkSession) -> DataFrame:
    """The records of ``raw``, in small batches."""
    reader = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    reader = reader.options(subscribe="raw", startingOffsets="earliest", includeHeaders="true")
    return reader.option("maxOffsetsPerTrigger", 100).load()


def main() -> None:
    """Speculate, copy, archive."""
    session = SparkSession.builder.master(MASTER).config(map=CONFIG).getOrCreate()
    spark_io.register(session, by_value=True)
    assert session.range(1).select(is_missing()).first() == (True,), "a worker can import spark_io"
    speculate(session)
    copied = source(session).where(slowly("value")).select("key", "value").repartition(3)
    sink = copied.writeStream.format("raftlog").options(topic="copy", **{"bootstrap.servers": SERVERS})
    sink = sink.option("checkpointLocation", f"{DIRECTORY}/copying")
    sink.trigger(availableNow=True).start().awaitTermination()
    keeper = source(session).writeStream.format("raftlog-archive").option("bootstrap.servers", SERVERS)
    keeper = keeper.option("checkpointLocation", f"{DIRECTORY}/archiving")
    keeper.trigger(availableNow=True).start(f"{DIRECTORY}/archive").awaitTermination()


if __name__ == "__main__":
    main()
