"""A driver with one of the faults of the fault matrix: a program for ``faulty_drivers``.

``python faulty_driver.py SERVERS DIRECTORY NAME WHEN BATCH FROM TO`` copies the topic FROM to TO until
nothing is left. WHEN says what happens in the batch BATCH:

- ``before`` or ``after`` its commit it makes the file NAME and waits for the file NAME.go
- ``fails``: all attempts of its first task raise, with their rows sent
- ``inside``: the driver is killed while the request for the commit is on its way
- ``unanswered``: the commit raises although it was done
- ``stops``: the query is stopped while the first task is at work, and the driver ends
- ``never``: nothing
"""

from __future__ import annotations

import os
import signal
import sys
import threading
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

SERVERS, DIRECTORY, NAME, WHEN, BATCH, FROM, TO = sys.argv[1:]
INSIDE_S = 0.002  # after the commit has begun: a request takes about as long


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


def kill_driver() -> None:
    """The driver and its JVM; this code runs in a worker of them."""
    os.killpg(int(os.environ["FAULTY_DRIVER"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyWriter(StreamWriter):
    """Kills a task half-way through its rows, another one after them, and has the fault of its driver."""

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
        if batch == BATCH and first and WHEN == "stops":
            wait()
        if batch == BATCH and first and WHEN == "fails":
            raise RuntimeError("this task fails")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """With the fault, in its batch."""
        if str(batchId) != BATCH:
            super().commit(messages, batchId)
            return
        if WHEN == "before":
            wait()
        if WHEN == "inside":
            threading.Thread(target=super().commit, args=(messages, batchId)).start()
            time.sleep(INSIDE_S)
            kill_driver()
        super().commit(messages, batchId)
        if WHEN == "after":
            wait()
        if WHEN == "unanswered":
            raise TimeoutError("nobody has answered")

    def _ending(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in islice(iterator, 1):
            yield batch.slice(0, batch.num_rows // 2)
        time.sleep(1)  # what was sent is stored, as a rule; the verdict is the same if it is not
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
    os.environ["FAULTY_DRIVER"] = str(os.getpid())
    session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    session = session.config("spark.sql.codegen.wholeStage", "false")  # to compile takes longer than to run
    spark = session.config("spark.sql.shuffle.partitions", "3").getOrCreate()
    spark.dataSource.register(FaultySource)
    source = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    frame = source.options(subscribe=FROM, startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
    copied = frame.select("key", "value").repartition(3)
    sink = copied.writeStream.format("faulty").option("bootstrap.servers", SERVERS).option("topic", TO)
    sink = sink.option("checkpointLocation", f"{DIRECTORY}/checkpoint")
    query = sink.trigger(availableNow=True).start()
    if WHEN == "stops":
        while not (Path(DIRECTORY) / NAME).exists():
            query.awaitTermination(0.05)
        query.stop()
    else:
        query.awaitTermination()


if __name__ == "__main__":
    main()
