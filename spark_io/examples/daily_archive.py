"""Archives the records that arrived since the previous run, and ends: a job for cron.

``python -m spark_io.examples.daily_archive --checkpoint DIRECTORY --topic TOPIC --archive DIRECTORY``

A run that is killed, or fails, loses no record: the next run continues at the checkpoint. The exit status of
a failed run is not 0, so that cron sends mail.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_io.examples.flights import arguments, session


def archive_new_records(
    spark: SparkSession, servers: str, *, topic: str, archive: str, checkpoint: str
) -> int:
    """Archive new records; return their number."""
    source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    records = source.option("includeHeaders", "true").option("maxBytesPerTrigger", 128 << 20).load()
    sink = records.writeStream.format("raftlog-archive").option("bootstrap.servers", servers)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(archive)
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def main() -> None:
    """Carry out one run."""
    given = arguments(__doc__, "topic", "archive")
    spark = session("daily archive")
    archive_new_records(
        spark, given.servers, topic=given.topic, archive=given.archive, checkpoint=given.checkpoint
    )
    spark.stop()


if __name__ == "__main__":
    main()
