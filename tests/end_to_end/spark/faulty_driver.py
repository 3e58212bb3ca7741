"""A driver whose tasks are killed, and that waits to be killed itself: a program for ``test_faults``.

``python faulty_driver.py SERVERS DIRECTORY NAME WHEN BATCH`` copies the topic ``raw`` to ``copy`` until
nothing is left. WHEN is ``before`` or ``after`` the commit of the batch BATCH, where it makes the file NAME
and waits for the file NAME.go.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_io.data_source import RaftlogDataSource
from spark_io.options import write_options
from spark_io.sink import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa

SERVERS, DIRECTORY, NAME, WHEN, BATCH = sys.argv[1:]


def once(what: str) -> bool:
    """True for the first process that asks."""
    try:
        (Path(DIRECTORY) / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait() -> None:
    """Say that it is there, and wait."""
    (Path(DIRECTORY) / NAME).touch()
    while not (Path(DIRECTORY) / f"{NAME}.go").exists():
        time.sleep(0.05)


class FaultyWriter(StreamWriter):
    """Kills a task half-way through its rows, another one after them, and stops at its commit."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Batch 1: dead with half of its rows sent. BATCH: dead before its message is out."""
        context = TaskContext.get()
        assert context is not None
        batch, first = context.getLocalProperty("streaming.sql.batchId"), context.partitionId() == 0
        if batch == "1" and first and once("F1"):
            iterator = self._ending(iterator)
        message = super().write(iterator)
        if batch == BATCH and first and once("F2"):
            os.kill(os.getpid(), signal.SIGKILL)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Wait before or after it."""
        if str(batchId) == BATCH and WHEN == "before":
            wait()
        super().commit(messages, batchId)
        if str(batchId) == BATCH and WHEN == "after":
            wait()

    def _ending(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in islice(iterator, 1):
            yield batch.slice(0, batch.num_rows // 2)
        time.sleep(1)  # what was sent is stored
        os.kill(os.getpid(), signal.SIGKILL)


class FaultySource(RaftlogDataSource):
    """The format, with faults."""

    @classmethod
    def name(cls) -> str:
        """Beside the true one."""
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """The writer with faults."""
        return FaultyWriter(write_options(self.options, is_stream=True))


def main() -> None:
    """Until nothing is left to copy."""
    session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = session.config("spark.sql.shuffle.partitions", "3").getOrCreate()
    spark.dataSource.register(FaultySource)
    source = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    frame = source.options(subscribe="raw", startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
    copied = frame.select("key", "value").repartition(3)
    sink = copied.writeStream.format("faulty").option("bootstrap.servers", SERVERS).option("topic", "copy")
    sink = sink.option("checkpointLocation", f"{DIRECTORY}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
