"""Archive what has come since the last run, for cron: it ends when nothing is left.

``python -m spark_io.examples.daily_archive --checkpoint DIRECTORY --topic TOPIC --archive DIRECTORY``

A run that is killed, or fails, loses nothing: the next one goes on where the checkpoint says. Its exit status
is not 0 if it fails, so that cron sends mail.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_io.examples.flights import arguments, session


def archive_new_records(
    spark: SparkSession, servers: str, *, topic: str, archive: str, checkpoint: str
) -> int:
    """Returns how many records this run has archived."""
    source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    records = source.option("includeHeaders", "true").option("maxBytesPerTrigger", 128 << 20).load()
    sink = records.writeStream.format("raftlog-archive").option("bootstrap.servers", servers)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(archive)
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def main() -> None:
    """One run."""
    given = arguments(__doc__, "topic", "archive")
    spark = session("daily archive")
    archive_new_records(
        spark, given.servers, topic=given.topic, archive=given.archive, checkpoint=given.checkpoint
    )
    spark.stop()


if __name__ == "__main__":
    main()
