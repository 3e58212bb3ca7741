"""A driver that archives a topic, and that is killed: a program for ``archiving``.

``python archiving_driver.py SERVERS DIRECTORY WHEN LAYOUT`` archives the topic ``history`` below DIRECTORY
until nothing is left. WHEN is ``before`` or ``after`` the commit of batch 2, where it kills itself, or
``never``.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from spark_io.archive.data_source import ArchiveDataSource
from spark_io.archive.options import archive_write_options
from spark_io.archive.sink import ArchiveWriter

SERVERS, DIRECTORY, WHEN, LAYOUT = sys.argv[1:]
BATCH = 2  # batch 0 has no records


def kill_driver() -> None:
    """The driver and its JVM; this code runs in a worker of them."""
    os.killpg(int(os.environ["ARCHIVING_DRIVER"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class FaultyWriter(ArchiveWriter):
    """Kills the driver beside its commit."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The commit, and death before or after it."""
        if batchId == BATCH and WHEN == "before":
            kill_driver()
        super().commit(messages, batchId)
        if batchId == BATCH and WHEN == "after":
            kill_driver()


class FaultySource(ArchiveDataSource):
    """The format, with faults."""

    @classmethod
    def name(cls) -> str:
        """Beside the true one."""
        return "faulty-archive"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:
        """The writer with faults."""
        return FaultyWriter(archive_write_options(self.options))


def main() -> None:
    """Until nothing is left to archive."""
    os.environ["ARCHIVING_DRIVER"] = str(os.getpid())
    session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    spark.dataSource.register(FaultySource)
    source = spark.readStream.format("raftlog").option("bootstrap.servers", SERVERS)
    source = source.option("subscribe", "history").option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", "100").option("includeHeaders", "true").load()
    sink = frame.writeStream.format("faulty-archive").option("bootstrap.servers", SERVERS)
    sink = sink.option("layout", LAYOUT)
    sink = sink.option("checkpointLocation", f"{DIRECTORY}/checkpoint").option("path", f"{DIRECTORY}/archive")
    sink.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
