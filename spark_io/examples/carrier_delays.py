"""Writes the mean delay of each carrier's flights to a topic, in windows of five minutes.

``python -m spark_io.examples.carrier_delays --checkpoint DIRECTORY --flights TOPIC --delays TOPIC``

The record of a flight may arrive up to a day after records of flights with the same schedule: the record of a
flight comes at its departure, and the record of a cancelled flight at the end of the day. So a window is
final a day after its end, and is then written once.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery

from spark_io.examples.flights import arguments, read_flights, session

LATE: Final = "1 day"
WINDOW: Final = "5 minutes"


def write_delays(
    spark: SparkSession,
    servers: str,
    *,
    flights: str,
    delays: str,
    checkpoint: str,
    trigger: dict[str, Any] | None = None,
) -> StreamingQuery:
    """Start the query. Each record is one window of one carrier, as JSON with the carrier as key."""
    late = read_flights(spark, servers, flights).withWatermark("scheduled", LATE)
    windows = late.groupBy(window("scheduled", WINDOW), "carrier")
    found = windows.agg({"*": "count", "dep_delay": "avg"})
    named = found.withColumnsRenamed({"count(1)": "flights", "avg(dep_delay)": "mean_delay"})
    fields = "window.start, window.end, carrier, flights, round(mean_delay, 3) as mean_delay"
    records = named.selectExpr("carrier as key", f"to_json(struct({fields})) as value")
    sink = records.writeStream.format("raftlog").option("bootstrap.servers", servers).option("topic", delays)
    sink = sink.option("checkpointLocation", checkpoint).outputMode("append")
    return sink.trigger(**(trigger or {"processingTime": "1 minute"})).start()


def main() -> None:
    """Run the query until it is stopped."""
    given = arguments(__doc__, "flights", "delays")
    query = write_delays(
        session("carrier delays"),
        given.servers,
        flights=given.flights,
        delays=given.delays,
        checkpoint=given.checkpoint,
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
