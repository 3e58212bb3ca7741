"""Measures one connector of Spark.

Each connector needs a process of its own, because a session cannot change its jars. ``python -m
bench.spark_program JSON`` takes the fields of ``Task`` and prints the fields of ``Figures`` as its last line.
The topics ``source`` and ``ticks`` must be empty. The sink writes to the topics ``sunk`` and ``ticked``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

RECORD_BYTES: Final = 1_024
PARTITIONS: Final = 4
TICK_ROWS: Final = 10
WARM_TICKS: Final = 20


class Task(msgspec.Struct, frozen=True):
    """The inputs of a run.

    ``server_option`` is the connector's name of the option for ``servers``. If ``ticks`` is 0, triggers are
    not measured.
    """

    format: str
    server_option: str
    servers: str
    records: int
    ticks: int
    rounds: int
    deliveries: tuple[str, ...] = ()  # of raftlog's sink; empty for another sink
    class_path: str = ""


class Figures(msgspec.Struct):
    """The figures of a connector: records per second of each round, and milliseconds of each trigger.

    The rounds of the sink are by delivery.
    """

    source: list[float]
    sinks: dict[str, list[float]]
    triggers_ms: list[float]


class Measurement:
    """The measurements of one connector, in one session."""

    def __init__(self, task: Task) -> None:
        self._task = task
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.memory", "2g").config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", 10_000)
        if task.class_path:
            builder = builder.config("spark.driver.extraClassPath", task.class_path)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")

    def run(self) -> Figures:
        """Measure source, sinks and triggers.

        The first round of each measurement is a warm-up and does not count.
        """
        task = self._task
        self._write(task.records, "source", "")
        source = [self._read() for _ in range(task.rounds + 1)][1:]
        sinks = {
            delivery: [self._write(task.records, "sunk", delivery) for _ in range(task.rounds + 1)][1:]
            for delivery in task.deliveries or ("",)
        }
        if not task.ticks:
            return Figures(source, sinks, [])
        self._write((task.ticks + WARM_TICKS) * TICK_ROWS, "ticks", "")
        return Figures(source, sinks, self._triggers()[WARM_TICKS:])

    def _write(self, records: int, topic: str, delivery: str) -> float:
        """Write a DataFrame to a topic; return the records per second."""
        value = f"rpad(cast(id as string), {RECORD_BYTES}, 'x') as value"
        frame = self._spark.range(0, records, 1, PARTITIONS).selectExpr("cast(id as string) as key", value)
        write = frame.write.format(self._task.format).mode("append").option("topic", topic)
        write = write.option(self._task.server_option, self._task.servers)
        if delivery:
            write = write.option("delivery", delivery)
        began = time.perf_counter()
        write.save()
        return records / (time.perf_counter() - began)

    def _read(self) -> float:
        """Read a topic with all columns, drop the rows in the JVM; return the records per second."""
        reader = self._spark.read.format(self._task.format).option("subscribe", "source")
        frame = reader.option(self._task.server_option, self._task.servers).load()
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return self._task.records / (time.perf_counter() - began)

    def _triggers(self) -> list[float]:
        """The milliseconds of each trigger of a query that copies a few records from a topic to another."""
        reader = self._spark.readStream.format(self._task.format).option("subscribe", "ticks")
        reader = reader.option(self._task.server_option, self._task.servers)
        reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(TICK_ROWS))
        copied: DataFrame = reader.load().select("key", "value")
        with tempfile.TemporaryDirectory(prefix="raftlog-bench-") as checkpoint:
            sink = copied.writeStream.format(self._task.format).option("topic", "ticked")
            sink = sink.option(self._task.server_option, self._task.servers)
            query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            progress = query.recentProgress
        return [one.durationMs["triggerExecution"] for one in progress if one.numInputRows]


def main() -> None:
    """Run the task given on the command line."""
    figures = Measurement(msgspec.json.decode(sys.argv[1], type=Task)).run()
    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")


if __name__ == "__main__":
    main()
