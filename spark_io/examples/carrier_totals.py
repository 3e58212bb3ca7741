"""Writes the number of flights of each carrier to a topic; the newest record of a carrier is its total.

``python -m spark_io.examples.carrier_totals --checkpoint DIRECTORY --flights TOPIC --totals TOPIC``

A run adds the flights that arrived since the previous run, and ends. The totals are state in the checkpoint;
each batch writes one record for each of its carriers. A killed run is repeated from its last complete batch,
so no flight counts twice, and no total is written twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_io.examples.flights import arguments, read_flights, session

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

RECORD: Final = "key string, value string"
STATE: Final = "flights long, departed long, delay_minutes long"


def write_totals(
    spark: SparkSession, servers: str, *, flights: str, totals: str, checkpoint: str
) -> StreamingQuery:
    """Start the query. Each record has a carrier as key, and its totals as JSON."""
    by_carrier = read_flights(spark, servers, flights).select("carrier", "dep_delay").groupBy("carrier")
    records = by_carrier.applyInPandasWithState(added, RECORD, STATE, "append", "NoTimeout")
    sink = records.writeStream.format("raftlog").option("bootstrap.servers", servers).option("topic", totals)
    sink = sink.option("checkpointLocation", checkpoint).outputMode("append")
    return sink.trigger(availableNow=True).start()


def added(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add the flights of one batch to the totals of a carrier. A cancelled flight has no delay."""
    import pandas as pd

    flights, departed, minutes = state.get if state.exists else (0, 0, 0)
    for frame in frames:
        known = frame["dep_delay"].dropna()
        flights, departed, minutes = flights + len(frame), departed + len(known), minutes + int(known.sum())
    state.update((flights, departed, minutes))
    total = {"flights": flights, "departed": departed, "delay_minutes": minutes}
    yield pd.DataFrame({"key": [key[0]], "value": [json.dumps(total)]})


def main() -> None:
    """Carry out one run."""
    given = arguments(__doc__, "flights", "totals")
    spark = session("carrier totals")
    query = write_totals(
        spark, given.servers, flights=given.flights, totals=given.totals, checkpoint=given.checkpoint
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
