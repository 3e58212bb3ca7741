"""Writes the sessions of each aircraft to a topic: flights from New York, at most twelve hours apart.

``python -m spark_io.examples.aircraft_days --checkpoint DIRECTORY --flights TOPIC --sessions TOPIC``

Spark keeps the open sessions of all aircraft as state, in the checkpoint. A session is written once, when no
further flight can belong to it: when its last flight is older than the newest flight by ``GAP`` and a day.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import session_window
from pyspark.sql.streaming.query import StreamingQuery

from spark_io.examples.flights import arguments, read_flights, session

LATE: Final = "1 day"
GAP: Final = "12 hours"


def write_sessions(
    spark: SparkSession,
    servers: str,
    *,
    flights: str,
    sessions: str,
    checkpoint: str,
    trigger: dict[str, Any] | None = None,
) -> StreamingQuery:
    """Start the query. Each record is one session of one aircraft, as JSON with the tail number as key."""
    late = read_flights(spark, servers, flights).where("tailnum <> ''").withWatermark("scheduled", LATE)
    found = late.groupBy(session_window("scheduled", GAP).alias("session"), "tailnum")
    named = found.agg({"*": "count", "air_time": "sum"}).withColumnsRenamed(
        {"count(1)": "flights", "sum(air_time)": "air_minutes"}
    )
    last = f"session.end - interval {GAP} as last"
    records = named.selectExpr("*", "session.start as first", last).selectExpr(
        "tailnum as key", "to_json(struct(tailnum, first, last, flights, air_minutes)) as value"
    )
    sink = (
        records.writeStream.format("raftlog").option("bootstrap.servers", servers).option("topic", sessions)
    )
    sink = sink.option("checkpointLocation", checkpoint).outputMode("append")
    return sink.trigger(**(trigger or {"processingTime": "1 minute"})).start()


def main() -> None:
    """Run the query until it is stopped."""
    given = arguments(__doc__, "flights", "sessions")
    query = write_sessions(
        session("aircraft days"),
        given.servers,
        flights=given.flights,
        sessions=given.sessions,
        checkpoint=given.checkpoint,
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
