"""Shared code of the examples: the flights of a topic as columns, a session, and the command line."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

from pyspark.sql import DataFrame, SparkSession

_TEXTS: Final = ("year", "month", "day", "sched_dep_time", "dep_delay", "air_time", "carrier", "tailnum")
_FLIGHT: Final = (
    f"from_json(cast(value as string), '{', '.join(f'{one} string' for one in _TEXTS)}') as flight"
)
_COLUMNS: Final = (
    "try_make_timestamp(year, month, day, sched_dep_time div 100, sched_dep_time % 100, 0) as scheduled",
    "carrier",
    "tailnum",
    "dep_delay",
    "air_time",
)


def read_flights(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A stream of flights. ``scheduled``, the planned departure, is the time of the event.

    The fields of the JSON are text. A text that is not a number, as the delay of a cancelled flight, is null.
    """
    source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    texts = source.option("maxOffsetsPerTrigger", 100_000).load().selectExpr(_FLIGHT).select("flight.*")
    numbers = [one for one in _TEXTS if one not in ("carrier", "tailnum")]
    typed = texts.selectExpr("carrier", "tailnum", *[f"try_cast({one} as int) as {one}" for one in numbers])
    return typed.selectExpr(*_COLUMNS).where("scheduled is not null")


def session(name: str) -> SparkSession:
    """Create a session whose workers use this Python interpreter.

    Its time zone is UTC, since event times have no zone.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC").getOrCreate()


def arguments(description: str | None, *places: str) -> argparse.Namespace:
    """Parse ``--servers``, ``--checkpoint``, and a required option for each of ``places``."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    parser.add_argument("--servers", default="localhost:7070", help="addresses of brokers, with commas")
    for place in ("checkpoint", *places):
        parser.add_argument(f"--{place}", required=True)
    return parser.parse_args()
